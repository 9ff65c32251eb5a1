"""The web console: shows, searches and changes a log in a browser, and answers as JSON."""
