import { Connection } from '@temporalio/client'
import type { Payload } from '@temporalio/common'
import proto from '@temporalio/proto'
import { exportJWK, generateKeyPair } from 'jose'
import { PublicKey } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { queueOf, type Party } from '../../lib/parties.ts'
import { type Credential, gatewayToken } from '../../lib/party-tokens.ts'
import { EncryptingCodec, partyRing } from '../../lib/payload-codec.ts'
import { readKeyRing } from '../../lib/seal.ts'
import { temporalConnection } from '../../lib/temporal.ts'
import { Host } from '../../models/compute/hosts.ts'
import { insertHost } from './inserted-hosts.ts'
import { stackSettings } from './stack.ts'

// Hosts that call the gateway by hand, and workflows that give them tasks: what a host's worker and a workflow do, step
// by step.

const { CommandType } = proto.temporal.api.enums.v1

/** A host of the test with its key, or a party of another kind. */
export class CallingHost {
  readonly party: Party
  readonly key: Credential['key']
  readonly codec: EncryptingCodec
  readonly #connections: Connection[] = []

  constructor(party: Party, key: CallingHost['key']) {
    this.party = party
    this.key = key
    const ring = readKeyRing(stackSettings().KEELSON_CODEC_KEY_FILE)
    this.codec = new EncryptingCodec({ ring: partyRing(ring, this.party) })
  }

  static async enrol(): Promise<CallingHost> {
    const pair = await generateKeyPair('EdDSA', { crv: 'Ed25519' })
    const { kty, crv, x } = await exportJWK(pair.publicKey)
    const { _id } = await insertHost({ public_key: PublicKey.parse({ kty, crv, x }) })
    return new CallingHost({ kind: 'host', id: _id }, pair.privateKey)
  }

  get id(): string {
    return this.party.id
  }

  get queue(): string {
    return queueOf(this.party)
  }

  /** What it can call at a gateway, with that token or a good one. */
  async at(port: number, token?: string): Promise<Connection['workflowService']> {
    const authorization = `Bearer ${token ?? (await gatewayToken({ party: this.party, key: this.key }))}`
    const connection = Connection.lazy({
      address: `127.0.0.1:${port}`,
      metadata: { authorization },
      interceptors: [],
    })
    this.#connections.push(connection)
    return connection.workflowService
  }

  /** As when an operator deletes it. */
  async remove(): Promise<void> {
    await Host.deleteOne({ _id: this.id })
  }

  /** Ends its calls. */
  async close(): Promise<void> {
    for (const connection of this.#connections) await connection.close()
  }
}

/** Temporal, as who reaches its port has it. */
export const openTemporal = (): Connection => Connection.lazy(temporalConnection(stackSettings()))

const { KEELSON_TEMPORAL_NAMESPACE: namespace } = stackSettings()

/** Starts a workflow that gives a party a task with this input, and has no worker. Returns its id. */
export async function giveTask(
  temporal: Connection,
  taskQueue: string,
  input: (workflowId: string) => Promise<Payload[]>,
  activity = 'workOnHost',
): Promise<string> {
  const workflowId = `by-hand-${newId()}`
  const queue = { name: workflowId }
  await temporal.workflowService.startWorkflowExecution({
    namespace,
    workflowId,
    workflowType: { name: 'byHand' },
    taskQueue: queue,
    requestId: newId(),
  })
  const { taskToken } = await soon(temporal, () =>
    temporal.workflowService.pollWorkflowTaskQueue({ namespace, taskQueue: queue }),
  )
  await temporal.workflowService.respondWorkflowTaskCompleted({
    namespace,
    taskToken,
    commands: [
      {
        commandType: CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
        scheduleActivityTaskCommandAttributes: {
          activityId: '1',
          activityType: { name: activity },
          taskQueue: { name: taskQueue },
          input: { payloads: await input(workflowId) },
          scheduleToCloseTimeout: { seconds: 600 as never },
          heartbeatTimeout: { seconds: 300 as never },
        },
      },
    ],
  })
  return workflowId
}

/** Temporal answers a poll only if it knows how long it may take. */
export const soon = <T>(connection: Connection, poll: () => Promise<T>): Promise<T> =>
  connection.withDeadline(Date.now() + 60_000, poll)

/** The events of a workflow's history. */
export async function eventsOf(
  temporal: Connection,
  workflowId: string,
): Promise<proto.temporal.api.history.v1.IHistoryEvent[]> {
  const execution = { workflowId }
  const { history } = await temporal.workflowService.getWorkflowExecutionHistory({ namespace, execution })
  return history?.events ?? []
}
