"""The governor on the wire: who asks, what they may, REST, server-sent events, pages."""
