import type { IncomingMessage, RequestListener } from 'node:http'

// How long a client may take to send a body. Node has one limit for all requests of a server, and the layers of an image
// or an archive may take an hour.

const usual = { wholeWithinMs: 120_000, silentMs: 60_000 }

const isStream = ({ url = '' }: IncomingMessage): boolean => /^\/(v2|api\/v1\/uploads)\//.test(url)

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0

/** Ends a request whose body takes too long: that of an image or an archive, when nothing of it comes for a minute. */
export const limitBodies =
  (handler: RequestListener, { wholeWithinMs, silentMs } = usual): RequestListener =>
  (request, response) => {
    if (hasBody(request)) {
      const end = (): void => {
        if (response.headersSent) request.destroy()
        else response.writeHead(408, { Connection: 'close' }).end(() => request.destroy())
      }
      const timer = setTimeout(end, isStream(request) ? silentMs : wholeWithinMs)
      const over = (): void => clearTimeout(timer)
      if (isStream(request)) request.on('data', () => timer.refresh()).pause()
      request.once('end', over).once('close', over)
    }
    handler(request, response)
  }
