import { Readable } from 'node:stream'
import type Docker from 'dockerode'
import type { z } from 'zod'

/**
 * Opens the engine's answer as a stream; dockerode reads some answers into memory whole. The stream fails when the
 * engine goes away or the signal aborts. `login`: for the registry that the engine will ask.
 */
export const openStream = (
  docker: Docker,
  method: 'GET' | 'POST',
  path: string,
  query: Record<string, unknown>,
  signal?: AbortSignal,
  login?: { username: string; password: string } | null,
): Promise<Readable> =>
  new Promise((resolve, reject) => {
    const request = {
      method,
      path: `${path}?`,
      options: query,
      isStream: true,
      statusCodes: { 200: true, 400: 'bad parameter', 404: 'not found', 500: 'server error' },
      ...(signal ? { abortSignal: signal } : {}),
      ...(login ? { authconfig: { username: login.username, password: login.password } } : {}),
    }
    docker.modem.dial(request, (error, answer) => {
      if (answer instanceof Readable) resolve(answer)
      else reject(error instanceof Error ? error : new Error(String(error)))
    })
  })

/** Parses the engine's JSON streams, one value per line. Fails when the stream breaks off. */
export async function* jsonLines<S extends z.ZodType>(
  stream: Readable,
  schema: S,
): AsyncGenerator<z.infer<S>> {
  stream.setEncoding('utf8') // a character may span two chunks
  let rest = ''
  for await (const chunk of stream) {
    const lines = `${rest}${chunk}`.split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim()) yield schema.parse(JSON.parse(line))
  }
}
