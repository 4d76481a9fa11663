"""tmux as we use it: facts of its panes, going to one and back, its settings. Knows no agent, no boss."""
