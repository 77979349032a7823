import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { WorkflowFailedError } from '@temporalio/client'
import { ApplicationFailure } from '@temporalio/common'
import { newId } from '../../lib/ids.ts'
import { startOptions, workflowType } from '../../lib/operation-workflows.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { containerResource } from '../../models/compute/containers.ts'
import { acceptVerb, findOperation } from '../../models/operations.ts'
import { requestCancel } from '../../models/operation-cancels.ts'
import { startOperation } from '../../workflows/starters.ts'
import { type Accepted, shell } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// In Temporal, an operation's workflow ends as the operation has ended, and its details say so.

const temporal = temporalClient(stackSettings())
let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterAll(() => temporal.connection.close())

const deaf = () => tenant.containers.make(shell('trap "" TERM; while :; do sleep 1; done'))
const failing = () => tenant.containers.create({ image: 'localhost:1/none' })

async function workflowOf({ operation }: Pick<Accepted, 'operation'>): Promise<string> {
  await operation.end()
  return (await operation.now()).workflow_id
}

/** How a workflow has ended: its status, its failure if it has one, and its current details, as the Temporal UI asks for them. */
async function endOf(workflowId: string) {
  const handle = temporal.workflow.getHandle(workflowId)
  const failure = await handle.result().then(
    () => null,
    (error: unknown) => {
      if (error instanceof WorkflowFailedError) return error.cause ?? null
      throw error
    },
  )
  const { status } = await handle.describe()
  const { currentDetails } = await handle.query<{ currentDetails: string }>('__temporal_workflow_metadata')
  return { status: status.name, failure, details: currentDetails }
}

describe('the workflow of an operation', () => {
  test('that succeeded is completed, and shows no step', async () => {
    expect(await endOf(await workflowOf(await tenant.containers.create()))).toEqual({
      status: 'COMPLETED',
      failure: null,
      details: 'succeeded',
    })
  })

  test('that failed has failed with the code of its error, and without its words', async () => {
    const { status, failure, details } = await endOf(await workflowOf(await failing()))
    expect([status, details]).toEqual(['FAILED', 'failed: image_not_found'])
    expect(failure).toBeInstanceOf(ApplicationFailure)
    expect(failure).toMatchObject({
      type: 'image_not_found',
      message: 'failed: image_not_found',
      nonRetryable: true,
    })
  })

  test('that was cancelled is cancelled', async () => {
    const { id } = await deaf()
    const stop = await tenant.containers.stop(id, { grace_sec: 300 })
    await eventually(async () => (await stop.operation.now()).step !== null)
    await stop.operation.cancel()
    expect(await endOf(await workflowOf(stop))).toMatchObject({ status: 'CANCELLED', details: 'cancelled' })
  })

  test('that was cancelled before its workflow began is cancelled', async () => {
    const { id } = await tenant.containers.make()
    const stop = {
      resource: containerResource,
      tenantId: tenant.id,
      requestedBy: null,
      id,
      verb: 'stop',
    } as const
    const { operation } = await acceptVerb({ ...stop, input: { grace_sec: 1 } })
    await requestCancel(tenant.id, operation._id)
    await startOperation(temporal, operation)
    expect(await endOf(operation.workflow_id)).toMatchObject({ status: 'CANCELLED', details: 'cancelled' })
    expect(await findOperation(operation._id)).toMatchObject({ state: 'cancelled' })
  })

  test('that had ended before its workflow began ends as the operation, and changes nothing', async () => {
    const { operation } = await failing()
    await operation.end()
    const ended = await findOperation(operation.id)
    if (!ended) throw new Error('the operation is gone')
    const workflowId = `again-${newId()}`
    await temporal.workflow.start(workflowType(ended), startOptions({ ...ended, workflow_id: workflowId }))
    expect(await endOf(workflowId)).toMatchObject({ status: 'FAILED', details: 'failed: image_not_found' })
    expect(await findOperation(operation.id)).toEqual(ended)
  })

  test('is found by how it ended', async () => {
    const other = await makeTenant()
    const [good, bad] = [
      await other.containers.create(),
      await other.containers.create({ image: 'localhost:1/none' }),
    ]
    const ids = [await workflowOf(good), await workflowOf(bad)]
    const found = async (status: 'Completed' | 'Failed') => {
      const query = `ExecutionStatus = '${status}' AND KeelsonTenant = '${other.id}'`
      const all: string[] = []
      for await (const { workflowId } of temporal.workflow.list({ query })) all.push(workflowId)
      return all
    }
    await eventually(async () => (await found('Failed')).length > 0 && (await found('Completed')).length > 0)
    expect([await found('Completed'), await found('Failed')]).toEqual(ids.map((id) => [id]))
  })
})
