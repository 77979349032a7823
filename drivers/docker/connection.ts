import type Docker from 'dockerode'

/**
 * No timeout of the client's own: a stop may take its grace, a pull minutes, a log as long as it is read.
 * No connection is kept either: one that the engine closed when it restarted would fail the next call. Not
 * by an agent: dockerode's debug output formats all options of each call, and an agent took 0.2 s a start.
 */
export function connection(dockerHost: string): Docker.DockerOptions {
  const url = new URL(dockerHost)
  const { hostname: host, port } = url
  const headers = { Connection: 'close' }
  // `host` is said aloud, since dockerode fills what is left out from DOCKER_HOST.
  if (url.protocol === 'unix:') return { socketPath: url.pathname, host: undefined, headers }
  if (url.protocol === 'https:') return { host, port: port || 2376, protocol: 'https', headers }
  return { host, port: port || 2375, protocol: 'http', headers }
}
