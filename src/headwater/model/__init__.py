"""What is there? Pipelines, sites, routes and the files they come from."""
