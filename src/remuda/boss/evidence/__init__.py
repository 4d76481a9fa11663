"""Where events come from beside hooks: keepers, the agents' own files, processes, panes."""
