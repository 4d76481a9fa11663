"""Sources of events besides HTTP: keepers, the agents' own files, processes, panes."""
