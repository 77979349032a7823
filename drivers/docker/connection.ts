import Docker from 'dockerode'

/**
 * No client timeout: a stop may take its grace period, a pull minutes, and a followed log has no end. No keep-alive: a
 * connection that the engine closed at a restart would fail the next call. No agent either: dockerode's debug output
 * formats all options of each call, and an agent cost 0.2 s per start.
 */
export function connection(dockerHost: string): Docker.DockerOptions {
  const url = new URL(dockerHost)
  const { hostname: host, port } = url
  const headers = { Connection: 'close' }
  // Set `host` explicitly: dockerode fills missing options from DOCKER_HOST.
  if (url.protocol === 'unix:') return { socketPath: url.pathname, host: undefined, headers }
  if (url.protocol === 'https:') return { host, port: port || 2376, protocol: 'https', headers }
  return { host, port: port || 2375, protocol: 'http', headers }
}

/** Resolves if the engine answers, and rejects if it does not before the signal aborts. */
export async function ping(docker: Docker, signal: AbortSignal): Promise<void> {
  // Its types lack the options.
  const ask = docker.ping.bind(docker) as (options: { abortSignal: AbortSignal }) => Promise<unknown>
  await ask({ abortSignal: signal })
}

export const pingDocker = (dockerHost: string, signal: AbortSignal): Promise<void> =>
  ping(new Docker(connection(dockerHost)), signal)
