"""The notebook's entry: a form for each job, the call it makes, its progress and its result."""
