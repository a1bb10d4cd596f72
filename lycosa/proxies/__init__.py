"""The proxy pool: rules, back ends, checking, gateway, API."""
