import { z } from 'zod'
import { dragonflyCopies } from './copies/dragonfly.ts'
import { between, type DatabaseEngine, type DatabaseUsers, keys, options } from './engine.ts'
import { likeRedis, redisMetrics, redisRights, redisUrl } from './redis.ts'

/** Says one command to the engine, and prints its answer. Each `%s` in it is one of the variables. */
const say = (words: string, ...variables: string[]): string => {
  const values = ['DFLY_requirepass', ...variables].map((name) => `"$${name}"`).join(' ')
  return `printf 'AUTH %s\\r\\n${words}\\r\\n' ${values} | nc -q1 127.0.0.1 6379 | tr -d '\\r'`
}
const ours = ['ATTACHED_USER', 'ATTACHED_PASSWORD']

const users: DatabaseUsers = {
  list: say('ACL USERS'),
  make: `${say(`ACL SETUSER %s ON RESETPASS >%s ~* &* ${redisRights}`, ...ours)} | tail -n1 | grep -qx +OK`,
  remove: `${say('ACL DELUSER %s', 'ATTACHED_USER')} | tail -n1 | grep -qx ':[01]'`,
  url: redisUrl,
}

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
  filling: ({ dbnum = 16 }) => ({ dbnum, cache_mode: false }),
  users,
  copies: dragonflyCopies,
  metrics: redisMetrics('REDISCLI_AUTH="$DFLY_requirepass" redis-cli'),
}
