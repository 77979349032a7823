import { hasClickHouse, hasEngines, makeDatabaseImages } from './database-images.ts'

// Makes the images of all engines that are here on the engine at KEELSON_DOCKER_HOST, and prints their types: for
// script/bench, which does not import tests.

const always = ['redis', 'postgresql', 'mariadb', 'mongodb'] as const
const types = hasEngines ? [...always, ...(hasClickHouse ? (['clickhouse'] as const) : [])] : []
await makeDatabaseImages(...types)
console.log(types.join('\n'))
process.exit()
