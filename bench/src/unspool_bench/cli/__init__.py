"""What this distribution adds to the command `unspool`: bench, report and auto-tune."""
