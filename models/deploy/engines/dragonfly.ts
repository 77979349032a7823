import { z } from 'zod'
import { between, type DatabaseEngine, keys, options } from './engine.ts'
import { likeRedis } from './redis.ts'

export const dragonfly: DatabaseEngine = {
  ...likeRedis,
  title: 'Dragonfly',
  image: 'docker.dragonflydb.io/dragonflydb/dragonfly',
  tagOf: (version) => `v${version}`,
  versions: ['1.33.1', '1.32.0', '1.31.2'],
  line: 1,
  // It wants 256 MiB for each of its threads, of which it gets one for each 512 MiB.
  memory_mib: { least: 320, usual: 512 },
  // The image has no client.
  healthy:
    'printf "AUTH %s\\r\\nPING\\r\\n" "$DFLY_requirepass" | nc -q1 127.0.0.1 6379 | tr -d "\\r" | grep -qx +PONG',
  env: ({ password }) => ({ DFLY_requirepass: password }),
  command: ({ memory_mib, configuration }) => [
    'dragonfly',
    '--logtostderr',
    ...options({
      dir: '/data',
      dbfilename: 'dump', // written also when it ends
      snapshot_cron: '*/5 * * * *',
      proactor_threads: Math.max(1, Math.floor(memory_mib / 512)),
      maxmemory: `${Math.floor(memory_mib * 0.8)}mb`,
      ...configuration,
    }),
  ],
  configuration: keys({
    cache_mode: z.boolean(),
    dbnum: between(1, 1024),
    maxclients: between(10, 65_000),
    snapshot_cron: z.string().regex(/^[\d*/, -]{9,64}$/),
  }),
}
