"""The chain of schema revisions; run by :mod:`allotment_hub.ledger.schema`."""
