import { z } from 'zod'
import { redisCopies } from './copies/redis.ts'
import {
  between,
  type Configuration,
  type DatabaseCredentials,
  type DatabaseEngine,
  type DatabaseUsers,
  type EngineMetrics,
  keys,
} from './engine.ts'

/** What engines with the protocol and the options of Redis share. */
export const likeRedis = {
  port: 6379,
  data_path: '/data',
  stop_grace_sec: 60,
  // REDISCLI_AUTH is the client's own variable for the password. While it loads its data, the answer is an error.
  healthy: 'redis-cli ping | grep -qx PONG',
  env: ({ password }: DatabaseCredentials) => ({ REDISCLI_AUTH: password }),
  configuration: keys({
    'maxmemory-policy': z.enum([
      'noeviction',
      'allkeys-lru',
      'allkeys-lfu',
      'allkeys-random',
      'volatile-lru',
      'volatile-lfu',
      'volatile-random',
      'volatile-ttl',
    ]),
    appendfsync: z.enum(['always', 'everysec', 'no']),
    timeout: between(0, 86_400),
    maxclients: between(10, 65_000),
    databases: between(1, 1024),
    'notify-keyspace-events': z.string().regex(/^[KEg$lshzxetdmnA]{0,16}$/),
  }),
  // A copy is compared before anything may be evicted.
  filling: ({ databases = 16 }: Configuration): Configuration => ({
    databases,
    'maxmemory-policy': 'noeviction',
  }),
  // Not every client takes an empty user.
  url: ({ password }: DatabaseCredentials, address: string) => `redis://default:${password}@${address}/0`,
  outside: {
    tls: 'load_balancer' as const,
    url: ({ password }: DatabaseCredentials, address: string) => `rediss://default:${password}@${address}/0`,
  },
}

/** All that clients need. Of what is dangerous: what many clients ask for at their start, and what only concerns keys. */
export const redisRights = '+@all -@admin -@dangerous +info +keys +sort +flushdb'

export const redisUrl: NonNullable<DatabaseUsers['url']> = ({ user, password }, address) =>
  `redis://${user}:${password}@${address}/0`

/** They are in memory alone, and are made again when the engine has started. The client's own exit code is always 0. */
export const redisUsers = (client: 'redis-cli' | 'keydb-cli'): DatabaseUsers => ({
  list: `${client} acl users`,
  make: `${client} <<END | grep -qx OK
ACL SETUSER $ATTACHED_USER reset on >$ATTACHED_PASSWORD ~* &* ${redisRights}
END`,
  remove: `${client} acl deluser "$ATTACHED_USER" | grep -qx '[01]'`,
  url: redisUrl,
})

/** `client`: with what it needs before it. Of the connections one is its own. */
export const redisMetrics = (client: string): EngineMetrics => ({
  script: `{ ${client} info; echo "maxclients:$(${client} config get maxclients | sed -n 2p)"; } | tr -d '\\r' | tr :=, '   ' | {
keys=0 most= answered=
while read -r name value other _; do
  case $name in
  connected_clients) answered=1; echo "metric $((value - 1)) connections" ;;
  maxclients) most=$value ;; # newer engines have it in both answers
  used_memory) echo "metric $value data_bytes" ;;
  total_commands_processed) echo "metric $value queries" ;;
  keyspace_hits) echo "metric $value cache_hits" ;;
  keyspace_misses) echo "metric $value cache_misses" ;;
  db[0-9]*) keys=$((keys + other)) ;;
  esac
done
[ -n "$answered" ] || exit 1
echo "metric $keys keys"
echo "metric $most connections_max"
}`,
  every_sec: 60,
  without: { slow_queries: 'it keeps the last slow commands and does not count them' },
})

/** Every write is in the append-only file. A quarter of the memory is for copies while that is written anew. */
export const redisOptions = (
  memory_mib: number,
  configuration: Configuration,
  { password }: DatabaseCredentials,
): string[] => {
  const settings: Configuration = {
    requirepass: password,
    appendonly: 'yes',
    maxmemory: `${Math.floor(memory_mib * 0.75)}mb`,
    dir: '/data',
    ...configuration,
  }
  return Object.entries(settings).flatMap(([key, value]) => [`--${key}`, String(value)])
}

export const redis: DatabaseEngine = {
  ...likeRedis,
  title: 'Redis',
  image: 'redis',
  versions: ['8.2.1', '8.0.3', '7.4.5', '7.2.10'],
  line: 1,
  memory_mib: { least: 16, usual: 128 },
  command: ({ memory_mib, configuration, credentials }) => [
    'redis-server',
    ...redisOptions(memory_mib, configuration, credentials),
    // For clients in the container: how a copy is loaded (copies/redis.ts). KeyDB knows no such option.
    '--enable-debug-command',
    'local',
  ],
  copies: redisCopies,
  users: redisUsers('redis-cli'),
  metrics: redisMetrics('redis-cli'),
}
