"""What all tests share."""

collect_ignore = ["federation/faulty_app"]  # an app of its own, for processes of its own
