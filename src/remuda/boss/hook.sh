# The quick way of hook.py, for events whose answer nobody waits for. Read by the shell that runs the hook:
#
#     h=…/hook.sh p=PYTHON b=BOSS_FOLDER; . "$h"
#
# An interpreter takes longer to start than everything that is done here, and the agent shares the processor with it.
# So the event is left in a file, for a boss that watches the folder now or when it is back: what hook.py would add
# stands in front of it, each value with a NUL behind it; the name says which process wrote it, the date when.
# Every tenth of those that lie there is left to hook.py, which keeps them within bounds, and so is whatever is not as
# it should be: a boss that cannot watch, a name that is taken.
[ -z "${REMUDA_SESSION+kept}" ] || exit 0
[ -z "$ZSH_VERSION" ] || emulate sh
if cd "$b/spool" 2>/dev/null && [ -e .watched ] && [ -O . ] 2>/dev/null; then
    umask 077
    set -C
    set -- *
    case $# in
    [0-9] | *[1-9])
        {
            printf '%s\0' "$TMUX" "$TMUX_PANE" "$CLAUDE_PID" "$CLAUDE_CODE_ENTRYPOINT" "$CLAUDE_JOB_DIR"
            exec cat
        } 2>/dev/null >"$$.hook"
        ;;
    esac
fi
exec "$p" -I -S "${h%.sh}.py" "$b"
