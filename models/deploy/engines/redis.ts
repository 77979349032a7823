import { z } from 'zod'
import { between, type Configuration, type DatabaseCredentials, type DatabaseEngine, keys } from './engine.ts'

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
  // Not every client takes an empty user.
  url: ({ password }: DatabaseCredentials, address: string) => `redis://default:${password}@${address}/0`,
}

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
  ],
}
