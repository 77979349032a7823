import { keydbCopies } from './copies/redis.ts'
import type { DatabaseEngine } from './engine.ts'
import { likeRedis, redisMetrics, redisOptions, redisUsers } from './redis.ts'

export const keydb: DatabaseEngine = {
  ...likeRedis,
  title: 'KeyDB',
  image: 'eqalpha/keydb',
  tagOf: (version) => `x86_64_v${version}`,
  versions: ['6.3.4', '6.3.3'],
  line: 1,
  memory_mib: { least: 32, usual: 128 },
  healthy: 'keydb-cli ping | grep -qx PONG',
  command: ({ memory_mib, configuration, credentials }) => [
    'keydb-server',
    ...redisOptions(memory_mib, configuration, credentials),
  ],
  copies: keydbCopies,
  users: redisUsers('keydb-cli'),
  metrics: redisMetrics('keydb-cli'),
}
