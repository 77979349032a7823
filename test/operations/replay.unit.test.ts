import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { bundleWorkflowCode, DefaultLogger, Runtime, Worker } from '@temporalio/worker'
import * as workflows from '../../workflows/index.ts'
import { anonymous } from '../replay/anonymous.ts'

// A new worker continues the workflows of an older one: each recorded history is replayed by the present code and must
// lead to the same steps. A change that breaks replay uses `patched`; record only new workflows, by
// test/replay/record.ts.

const folder = resolve(import.meta.dirname, '../replay/histories')
const files = readdirSync(folder)
const read = (file: string): Recorded => JSON.parse(readFileSync(join(folder, file), 'utf8')) as Recorded

interface Recorded {
  events: {
    eventType: string
    workflowExecutionStartedEventAttributes?: { workflowType: { name: string } }
  }[]
}

let code: string
beforeAll(async () => {
  const logger = new DefaultLogger('ERROR')
  Runtime.install({ logger, telemetryOptions: { logging: { filter: { core: 'ERROR', other: 'ERROR' } } } })
  const repository = resolve(import.meta.dirname, '../..')
  ;({ code } = await bundleWorkflowCode({
    workflowsPath: join(repository, 'workflows/index.ts'),
    workflowInterceptorModules: [join(repository, 'workflows/summaries.ts')],
    logger,
  }))
})

async function replay(histories: { workflowId: string; history: unknown }[]): Promise<unknown[]> {
  const errors: unknown[] = []
  for await (const { error } of Worker.runReplayHistories({ workflowBundle: { code } }, histories))
    if (error) errors.push(error)
  return errors
}

test.each(files)('replays %s', async (file) => {
  expect(await replay([{ workflowId: file, history: read(file) }])).toEqual([])
})

test('every workflow has a history', () => {
  const recorded = files.map(
    (file) => read(file).events[0]?.workflowExecutionStartedEventAttributes?.workflowType.name,
  )
  expect(Object.keys(workflows).filter((name) => !recorded.includes(name))).toEqual([])
})

describe('the replay test', () => {
  test('notices a step that is no longer taken', async () => {
    const file = files.find((name) => name.startsWith('createContainer.running')) ?? ''
    const text = readFileSync(join(folder, file), 'utf8').replaceAll(
      '"runContainerOnHost"',
      '"runSomethingElse"',
    )
    const [error] = await replay([{ workflowId: file, history: JSON.parse(text) as unknown }])
    expect(String(error)).toMatch(/[Nn]ondeterminism/)
  })

  test('needs no key: the recorded histories are not encrypted', () => {
    for (const file of files) expect(readFileSync(join(folder, file), 'utf8')).not.toContain('key_id')
  })

  test('has histories that name nothing of the machine that recorded them', () => {
    for (const file of files) {
      const nameless = read(file)
      anonymous(nameless)
      expect(read(file)).toEqual(nameless)
    }
  })
})
