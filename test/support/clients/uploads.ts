import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { patienceMs } from '../eventually.ts'

interface Answer {
  status: number
  offset: number
  length: number
  body: string
}

const partType = 'application/offset+octet-stream'

/** One request to the address of an upload. `breakAfter`: the connection breaks after so many bytes of the body. */
function send(
  url: string,
  method: string,
  { headers = {}, body, breakAfter }: { headers?: object; body?: Buffer; breakAfter?: number } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const length = body ? { 'content-length': body.length } : {}
    const sent = request(url, { method, agent: false, headers: { ...length, ...headers } }, (response) => {
      const { headers: said, statusCode: status = 0 } = response
      const answer = { status, offset: Number(said['upload-offset']), length: Number(said['upload-length']) }
      text(response).then((words) => resolve({ ...answer, body: words }), reject)
    })
    sent.on('error', reject)
    if (breakAfter === undefined) sent.end(body)
    else sent.write(body?.subarray(0, breakAfter), () => setTimeout(() => sent.destroy(), 200))
  })
}

/** An archive that is sent in parts, at the address that its artifact has got. */
export function uploadAt(url: string) {
  const upload = {
    head: (): Promise<Answer> => send(url, 'HEAD'),
    ask: (method: string, headers: object = {}, body?: Buffer): Promise<Answer> =>
      send(url, method, body ? { headers, body } : { headers }),
    add: (offset: number, body: Buffer, more: { breakAfter?: number } = {}): Promise<Answer> =>
      send(url, 'PATCH', {
        headers: { 'upload-offset': offset, 'content-type': partType },
        body,
        ...more,
      }),
    /**
     * Sends the archive in parts of this size, and goes on after each failure, as a good client does. Returns once all is sent, or
     * the upload has ended.
     */
    async all(archive: Buffer, partBytes = archive.length, withinMs = patienceMs): Promise<void> {
      const deadline = Date.now() + withinMs
      for (;;) {
        const found = await upload.head().catch(() => null)
        if (found?.status === 410 || (found?.status === 200 && found.offset === archive.length)) return
        if (Date.now() > deadline) throw new Error(`not sent in ${withinMs} ms: ${JSON.stringify(found)}`)
        const offset = found?.status === 200 ? found.offset : null
        const part = offset === null ? null : archive.subarray(offset, offset + partBytes)
        const added = part && offset !== null ? await upload.add(offset, part).catch(() => null) : null
        if (added?.status === 204 && added.offset === archive.length) return
        if (added?.status !== 204) await delay(200)
      }
    },
  }
  return upload
}
