"""What cannot be traced with unbacked sizes becomes one operator: selection, probing, inferred fake rules."""
