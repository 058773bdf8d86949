"""Run by alembic: applies revisions on the connection that :mod:`..schema` hands over."""

from alembic import context

from allotment_hub.ledger.tables import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
