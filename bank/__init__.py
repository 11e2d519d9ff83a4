"""The demo project: settings and URLs for the reusable apps, and a database backend that includes PostgreSQL."""
