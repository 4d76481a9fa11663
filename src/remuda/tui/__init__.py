"""The dashboard in a terminal: `remuda dash`. Only this package imports Textual."""
