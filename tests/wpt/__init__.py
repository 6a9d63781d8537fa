"""Web Platform Tests of a checkout beside this repository, run natively and in a view (`make wpt WPT=…`)."""
