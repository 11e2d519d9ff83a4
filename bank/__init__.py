"""The demo bank: settings and URLs around the reusable app, and no logic of its own."""
