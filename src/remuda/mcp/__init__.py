"""`remuda mcp`: an agent runs agents, through the Model Context Protocol."""
