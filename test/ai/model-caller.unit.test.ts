import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { answerIn } from '../../activities/runner/llm.ts'
import { makeModelCaller } from '../../worker/runner/door.ts'
import { chat, chatEvents, said, text } from '../support/model-provider/answers.ts'

// How a runner calls a model through its door, which is played by this file.

let folder: string
let door: string
let asked: Record<string, unknown>
let answer: (response: ServerResponse) => Promise<void>
const server = createServer((request: IncomingMessage, response) => {
  void (async () => {
    asked = JSON.parse(await textOf(request)) as Record<string, unknown>
    await answer(response)
  })()
})
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'door-'))
  door = join(folder, 'door.sock')
  await once(server.listen(door), 'listening')
})
afterAll(async () => {
  server.close()
  server.closeAllConnections()
  await rm(folder, { recursive: true })
})

const path = '/v1/chat/completions'
const events = chatEvents({ body: { model: 'm' }, figures: 'true' })
const call = { path, body: { model: 'm' }, token: 't', key: 'node/0' }
let texts: string[]
let onText: (piece: string) => void
beforeEach(() => {
  texts = []
  onText = (piece) => texts.push(piece)
})
const ask = (listener?: typeof onText) => makeModelCaller(door)(call, new AbortController().signal, listener)
const streaming = (response: ServerResponse) =>
  response.writeHead(200, { 'content-type': 'text/event-stream' })

const refusing = (status: number, body: string) => async (response: ServerResponse) => {
  response.writeHead(status, { 'content-type': 'application/json' }).end(body)
}

describe('a call of a model', () => {
  test('gives its text while the model speaks, and then the whole answer', async () => {
    const heard = Promise.withResolvers<void>()
    onText = (piece) => {
      texts.push(piece)
      heard.resolve()
    }
    answer = async (response) => {
      streaming(response).write(events.slice(0, 2).join(''))
      await heard.promise // the rest comes only after that
      response.end(events.slice(2).join(''))
    }
    const { status, said: whole } = await ask(onText)
    expect([status, answerIn('openai', whole, undefined), texts]).toEqual([
      200,
      JSON.stringify(text),
      said.pieces,
    ])
    expect(asked).toEqual({ model: 'm', stream: true })
  })

  test('does not stream if nobody listens, or the provider cannot', async () => {
    const whole = JSON.stringify(chat({ body: { model: 'm' }, figures: 'true' }))
    answer = async (response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end(whole)
    }
    expect(await ask()).toEqual({ status: 200, said: whole })
    expect(asked).toEqual({ model: 'm' })
    expect(await ask(onText)).toEqual({ status: 200, said: whole })
    expect(texts).toEqual([])
  })

  test('has no answer if the stream breaks or ends early, and a bad one if it says so', async () => {
    const heard = Promise.withResolvers<void>()
    answer = async (response) => {
      streaming(response).write(events.slice(0, 2).join(''))
      await heard.promise
      response.destroy()
    }
    await expect(ask(() => heard.resolve())).rejects.toMatchObject({
      code: 'model_unavailable',
      permanent: false,
    })
    answer = async (response) => {
      streaming(response).end(events.slice(0, 2).join(''))
    }
    await expect(ask(onText)).rejects.toMatchObject({ code: 'model_unavailable', permanent: false })
    const error = '{"error":{"code":"overloaded","message":"later"}}'
    answer = async (response) => {
      streaming(response).end(`data: ${error}\n\n`)
    }
    expect(await ask(onText)).toEqual({ status: 502, said: error })
  })

  test.each<[string, typeof answer]>([
    ['the door does not reach the gateway', refusing(502, '')],
    ['the gateway has no MongoDB', refusing(503, '{"error":{"code":"unavailable"}}')],
    [
      'the gateway has no MongoDB, as Anthropic’s API says it',
      refusing(503, '{"type":"error","error":{"type":"unavailable"}}'),
    ],
    ['the gateway breaks off before a word', async (response) => void response.destroy()],
    [
      'the stream breaks off before a word',
      async (response) => void streaming(response).write(events[0]?.slice(0, 9), () => response.destroy()),
    ],
  ])('is made again while %s', async (_, away) => {
    let times = 0
    answer = async (response) => {
      if (++times < 3) return away(response)
      streaming(response).end(events.join(''))
    }
    expect(await ask(onText)).toMatchObject({ status: 200 })
    expect([times, texts]).toEqual([3, said.pieces])
  })

  test('is made until its node’s time has passed', async () => {
    const over = new AbortController()
    answer = async (response) => {
      over.abort(new Error('too late'))
      await refusing(502, '')(response)
    }
    await expect(makeModelCaller(door)(call, over.signal)).rejects.toThrow('too late')
  })

  test('a provider’s own failure is its answer', async () => {
    const body = '{"error":{"code":"provider_unavailable"}}'
    answer = refusing(502, body)
    expect(await ask(onText)).toEqual({ status: 502, said: body })
  })

  test('that is refused says why', async () => {
    answer = async (response) => {
      response.writeHead(403, { 'content-type': 'application/json' }).end('{"error":{}}')
    }
    expect(await ask(onText)).toEqual({ status: 403, said: '{"error":{}}' })
  })
})
