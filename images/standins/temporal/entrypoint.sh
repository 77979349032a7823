#!/bin/bash
# Sets up or updates the schema, and starts the server.
set -euo pipefail
tool() { temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p "$DB_PORT" -u "$POSTGRES_USER" --pw "$POSTGRES_PWD" "$@"; }
for database in temporal visibility; do
  name=temporal
  [[ $database == temporal ]] || name=temporal_visibility
  [[ $name == "$POSTGRES_USER" ]] || tool --db "$name" create
  tool --db "$name" setup-schema -v 0.0 || true # it fails if the schema exists
  tool --db "$name" update-schema -d "schema/postgresql/v12/$database/versioned"
done
BIND_ON_IP=$(hostname -i | cut -d' ' -f1)
export BIND_ON_IP
exec temporal-server --root /etc/temporal --env docker start
