"""The warm pool: agents that stand ready before they are needed, and serve one conversation after another."""
