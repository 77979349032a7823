import { randomBytes } from 'node:crypto'
import { describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { claimAnswer, KeptAnswer } from '../../models/llm/kept-answers.ts'

// Who may keep the answer to a call of a run.

const [tenant_id, connector_id] = [newId(), newId()]

const call = (run_id: string) => ({
  tenant_id,
  run_id,
  connector_id,
  key: 'a',
  method: 'POST',
  path: '/chat/completions',
  body: Buffer.from('{}'),
})
const answer = (body: Buffer) => ({ status: 200, headers: {}, body })

async function claimed(run_id: string) {
  const found = await claimAnswer(call(run_id), newId())
  if (!found || !('claim' in found)) throw new Error('another call has it')
  return found.claim
}

describe('the claim to an answer', () => {
  test('goes to one of many calls', async () => {
    const run_id = newId()
    const all = await Promise.all(Array.from({ length: 20 }, () => claimAnswer(call(run_id), newId())))
    expect(all.filter((one) => one !== null)).toHaveLength(1)
  })

  test('is free again when it is given up', async () => {
    const run_id = newId()
    const first = await claimed(run_id)
    await first.giveUp()
    await (await claimed(run_id)).giveUp()
  })

  test('that was taken over keeps nothing, and gives nothing up', async () => {
    const run_id = newId()
    const late = await claimed(run_id)
    const of = { tenant_id, run_id }
    await KeptAnswer.updateMany(of, { $set: { lease_until: new Date() } })
    const next = await claimed(run_id)
    await late.keep(answer(Buffer.from('late')))
    await late.giveUp()
    expect(await claimAnswer(call(run_id), newId())).toBeNull()
    await next.keep(answer(Buffer.from('next')))
    await next.giveUp()
    expect(await claimAnswer(call(run_id), newId())).toEqual({ kept: answer(Buffer.from('next')) })
  })

  test('keeps no answer that is too large', async () => {
    const run_id = newId()
    for (const body of [randomBytes(300 * 1024), Buffer.alloc(9 * 1024 ** 2)]) {
      const claim = await claimed(run_id)
      await claim.keep(answer(body))
      await claim.giveUp()
    }
    const claim = await claimed(run_id)
    await claim.keep(answer(Buffer.alloc(8 * 1024 ** 2)))
    await claim.giveUp()
    const found = await claimAnswer(call(run_id), newId())
    expect(found).toMatchObject({ kept: { status: 200 } })
  })
})
