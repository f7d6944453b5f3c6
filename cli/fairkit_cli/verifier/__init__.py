"""The page that verifies certificates in a browser, offline: JavaScript modules, and what bundles them."""
