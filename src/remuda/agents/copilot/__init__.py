"""Everything that is true of GitHub Copilot CLI (`copilot`) and of no other agent. Seen on 1.0.102."""
