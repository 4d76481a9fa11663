"""One tool call: its hooks, the permission it needs, running it, and the lines about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.testing.script import ToolUse

from . import dialog, records
from .agent_loop import LoopTask, first_done
from .dialog import Answer, Chosen, Dialog, DialogCancelled, Wrote
from .hook_runner import HookVerdict
from .layout import DIM
from .stage import Stage, TurnEnded
from .tool import QUESTIONS, ToolOutcome, decide, rule_for, suggestions, timed

_NOTIFICATION_DELAY = 6.0
_BY_HAND = {"decision": "accept", "source": "user_temporary", "grantScope": "once", "reasonCode": "unknown"}
_BY_RULE = {"decision": "accept", "source": "config", "reasonType": "rule"}
_BY_HOOK = {"decision": "accept", "source": "hook", "reasonType": "hook", "reasonCode": "unknown"}


@dataclass(slots=True)
class Allowed:
    """The call runs, with this input."""

    given: Mapping[str, Any]
    decision: Mapping[str, str] = field(default_factory=lambda: _BY_RULE)


@dataclass(slots=True)
class Denied:
    """The call does not run; the model gets the reason, and goes on."""

    reason: str
    decision: Mapping[str, str]


class Call:
    """A call that the model made. ``running`` is true while an interrupt would hit the tool itself."""

    def __init__(self, stage: Stage, call: ToolUse, line_id: str) -> None:
        self._stage = stage
        self._call = call
        self._line_id = line_id
        self.running = False
        self.settled = False

    async def run(self) -> str:
        """Return the text for the model. TurnEnded when the call was rejected, not just denied."""
        ruling = await self._before()
        if isinstance(ruling, Denied):
            return self._deny(ruling)
        return await self._execute(ruling)

    def reject(self) -> None:
        """The line that says: not wanted. It ends the turn."""
        self.settled = True
        self._result(records.REJECTED, "User rejected tool use", error=True, toolDenialKind="user-rejected")
        self._stage.face.show(f"$ {self._subject()}", "  ⎿  ", DIM)

    @property
    def summary(self) -> dict[str, Any]:
        """How the call is named to PostToolBatch, but for its response."""
        return self._named(self._call.input)

    def _named(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool_name": self._call.name, "tool_input": dict(given), "tool_use_id": self._call.id}

    async def _before(self) -> Allowed | Denied:
        # The plan is in a file of its own; hooks never see it.
        given: Mapping[str, Any] = {} if self._call.name == "ExitPlanMode" else self._call.input
        verdict = await self._stage.fire("PreToolUse", self._named(given), self._call.name)
        for found in verdict.specific("PreToolUse"):
            given = found.get("updatedInput") or given
            match found.get("permissionDecision"):
                case "deny":
                    return self._refused_by_hook(str(found.get("permissionDecisionReason") or ""))
                case "allow":
                    return Allowed(given, _BY_HOOK)
                case "ask":
                    return await self._ask(given)
        if verdict.reasons:
            return self._refused_by_hook(verdict.reasons[0][1])
        return await self._by_rules(given)

    async def _by_rules(self, given: Mapping[str, Any]) -> Allowed | Denied:
        settings, session = self._stage.settings(), self._stage.session
        tool = self._call.name
        allow = [*settings.allow, *session.allowed]
        deny = [*settings.deny, *session.denied]
        decision = decide(tool, given, session.mode, allow=allow, deny=deny, ask=settings.ask)
        if decision == "deny":
            reason = f"Permission to use {tool} has been denied."
            return Denied(reason, {"decision": "reject", "source": "config", "reasonType": "rule"})
        if decision == "ask":
            return await self._ask(given)
        if session.mode == "auto" and self._stage.knobs.auto_mode_dialog:
            await self._stage.face.ask(dialog.auto_mode(), "dialog open")
        return Allowed(given)

    async def _ask(self, given: Mapping[str, Any]) -> Allowed | Denied:
        """Ask the user and the hooks at the same time; the first decision counts."""
        tool, stage = self._call.name, self._stage
        fields: dict[str, Any] = {"tool_name": tool, "tool_input": dict(given)}
        offered = suggestions(tool, stage.session.cwd)
        if offered is not None:
            fields["permission_suggestions"] = offered
        asked = self._dialog(given)
        waiting_for = "input needed" if tool == "AskUserQuestion" else "permission prompt"
        answer = stage.face.ask(asked, waiting_for, stage.knobs.dialog_guard)
        hook: LoopTask[HookVerdict] = stage.loop.spawn(stage.fire("PermissionRequest", fields, tool))
        notice = stage.loop.later(_NOTIFICATION_DELAY * stage.knobs.time_scale, self._notify)
        try:
            if await first_done(answer, hook) == 1:
                ruling = self._hook_ruling(hook.result(), given)
                if ruling is not None:
                    return ruling
            return self._by_hand(await answer, asked, given)
        finally:
            notice.cancel()
            if stage.face.dialog is asked:
                stage.face.withdraw()

    def _dialog(self, given: Mapping[str, Any]) -> Dialog:
        match self._call.name:
            case "AskUserQuestion":
                return dialog.question((given.get("questions") or [{}])[0])
            case "ExitPlanMode":
                return dialog.leave_plan(str(self._call.input.get("plan", "")))
            case tool:
                return dialog.permission(tool, given, self._stage.session.cwd)

    def _notify(self) -> None:
        fields = {"message": "Claude needs your permission", "notification_type": "permission_prompt"}
        self._stage.announce("Notification", fields, "permission_prompt")

    def _by_hand(self, answer: Answer, asked: Dialog, given: Mapping[str, Any]) -> Allowed:
        match self._call.name, answer:
            case _, DialogCancelled():
                raise TurnEnded
            case "AskUserQuestion", Chosen(row):
                return self._answered(given, asked.rows[row])
            case "AskUserQuestion", Wrote(text):
                return self._answered(given, text)
            case "ExitPlanMode", Chosen(0):
                self._stage.session.mode = "default"
            case _, Chosen(dialog.ALLOW_ALWAYS):
                self._stage.session.allowed.append(rule_for(self._call.name, given))
            case _, Chosen(dialog.ALLOW_IN_AUTO):
                self._stage.session.mode = "auto"
            case _, Chosen(dialog.ALLOW):
                pass
            case _:
                raise TurnEnded
        return Allowed(given, _BY_HAND)

    @staticmethod
    def _answered(given: Mapping[str, Any], text: str) -> Allowed:
        asked = (given.get("questions") or [{}])[0].get("question", "")
        return Allowed({**given, "answers": {asked: text}, "annotations": {}}, _BY_HAND)

    def _hook_ruling(self, verdict: HookVerdict, given: Mapping[str, Any]) -> Allowed | Denied | None:
        for found in verdict.specific("PermissionRequest"):
            decision = found.get("decision")
            if not isinstance(decision, dict):
                continue
            changed = decision.get("updatedInput")
            # A question is not answered by a bare "allow": the dialog stays.
            if decision.get("behavior") == "allow" and (
                changed is not None or self._call.name not in QUESTIONS
            ):
                self._apply_permissions(decision.get("updatedPermissions") or ())
                self._note_hook("allow")
                return Allowed({**given, **changed} if changed is not None else given, _BY_HOOK)
            if decision.get("behavior") == "deny":
                return self._denied_by_hook(decision)
        return None

    def _denied_by_hook(self, decision: Mapping[str, Any]) -> Denied:
        if decision.get("interrupt") is True:
            raise TurnEnded
        self._note_hook("deny")
        reason = str(decision.get("message") or "Permission denied by hook")
        ruling = {"decision": "reject", "source": "hook", "reasonType": "hook"}
        return Denied(reason, {**ruling, "reasonCode": "hook:PermissionRequest"})

    def _refused_by_hook(self, reason: str) -> Denied:
        ruling = {
            "decision": "reject",
            "source": "hook",
            "reasonType": "hook",
            "reasonCode": "hook:PreToolUse",
        }
        return Denied(f"PreToolUse:{self._call.name} hook error: {reason}", ruling)

    def _note_hook(self, decision: str) -> None:
        fields = {"decision": decision, "toolUseID": self._call.id, "hookEvent": "PermissionRequest"}
        transcript = self._stage.session.transcript
        leaf = transcript.leaf
        transcript.add(records.attachment("hook_permission_decision", fields))
        # A side branch: the conversation goes on after the call itself.
        transcript.leaf = leaf

    def _apply_permissions(self, updates: object) -> None:
        for update in updates if isinstance(updates, (list, tuple)) else ():
            match update:
                case {"type": "setMode", "mode": str(mode)}:
                    self._stage.session.mode = mode
                case {"type": "addRules", "rules": list(rules)}:
                    texts = (_rule_text(rule) for rule in rules if isinstance(rule, dict))
                    self._stage.session.allowed.extend(texts)

    def _deny(self, ruling: Denied) -> str:
        self.settled = True
        more = {"toolDenialKind": "permission-rule", "permissionDecision": ruling.decision}
        self._result(ruling.reason, f"Error: {ruling.reason}", error=True, **more)
        self._stage.face.show(f"Error: {ruling.reason}", "  ⎿  ", DIM)
        return ruling.reason

    async def _execute(self, allowed: Allowed) -> str:
        stage, name = self._stage, self._call.name
        self.running = True
        outcome, took = await stage.loop.in_thread(lambda: timed(lambda: self._outcome(allowed.given)))
        self.running = False
        self.settled = True
        sandboxed = {"sandboxed": False} if name == "Bash" else {}
        more = {**sandboxed, "permissionDecision": allowed.decision}
        # Only Bash says so of a success.
        error = outcome.failed if outcome.failed or name == "Bash" else None
        self._result(outcome.text, outcome.response, error=error, **more)
        stage.face.show(_shown(name, outcome), "  ⎿  ", DIM)
        await self._after(allowed.given, outcome, took)
        return outcome.text

    async def _after(self, given: Mapping[str, Any], outcome: ToolOutcome, took: int) -> None:
        fields = self._named(given)
        if outcome.failed:
            fields |= {"error": outcome.text, "is_interrupt": False, "duration_ms": took}
            await self._stage.fire("PostToolUseFailure", fields, self._call.name)
        else:
            call_id = fields.pop("tool_use_id")
            fields |= {"tool_response": outcome.response, "tool_use_id": call_id, "duration_ms": took}
            await self._stage.fire("PostToolUse", fields, self._call.name)

    def _outcome(self, given: Mapping[str, Any]) -> ToolOutcome:
        match self._call.name:
            case "AskUserQuestion":
                return _question_outcome(self._call.input, given)
            case "ExitPlanMode":
                text = "User has approved exiting plan mode. You can now proceed."
                return ToolOutcome(text, {"plan": given.get("plan"), "isAgent": False})
            case tool:
                return self._stage.tools.run(tool, given)

    def _result(self, content: str, result: object, *, error: bool | None, **more: object) -> None:
        session = self._stage.session
        record = records.tool_result(
            self._call.id or "", content, result, session.prompt_id or "", self._line_id, error, **more
        )
        session.transcript.add(record)

    def _subject(self) -> str:
        given = self._call.input
        return str(given.get("command") or given.get("file_path") or json.dumps(dict(given)))


def _question_outcome(asked: Mapping[str, Any], given: Mapping[str, Any]) -> ToolOutcome:
    answers = given.get("answers") or {}
    pairs = ", ".join(f'"{key}"="{value}"' for key, value in answers.items())
    labels = {o.get("label") for q in asked.get("questions") or () for o in q.get("options") or ()}
    if set(answers.values()) <= labels:
        text = f"Your questions have been answered: {pairs}. You can now continue with these answers in mind."
    else:
        text = (
            f"The user answered: {pairs}. Read the answers carefully — they may request clarification,"
            " changes, or that you not proceed — and follow what they actually say."
        )
    return ToolOutcome(text, dict(given))


def _rule_text(rule: Mapping[str, Any]) -> str:
    content = rule.get("ruleContent")
    return f"{rule.get('toolName', '')}" + (f"({content})" if content else "")


def _shown(tool: str, outcome: ToolOutcome) -> str:
    """Return a result on the screen: its first lines."""
    lines = outcome.text.split("\n")
    more = [f"… +{len(lines) - 4} lines"] if len(lines) > 4 else []
    return "\n".join([*lines[:4], *more]) if tool != "Read" else f"Read {len(lines)} lines"
