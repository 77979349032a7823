import { type Connection, isGrpcServiceError } from '@temporalio/client'
import {
  walkPollActivityTaskQueueResponse,
  walkRecordActivityTaskHeartbeatRequest,
  walkRespondActivityTaskCanceledRequest,
  walkRespondActivityTaskCompletedRequest,
  walkRespondActivityTaskFailedRequest,
} from '@temporalio/common/lib/internal-non-workflow/index.js'
import proto from '@temporalio/proto'
import type { Logger } from '../lib/log.ts'
import { nameOf, type Party, queueOf } from '../lib/parties.ts'
import { PayloadRefused } from '../lib/payload-codec.ts'
import { type Call, CallRefused, status } from './grpc.ts'
import type { HeldTask, Sealing } from './sealing.ts'

// What parties may ask of Temporal. Each request is made anew from the fields that a party needs, so that no other field,
// nor one that a later version adds, reaches Temporal.

const temporal = proto.temporal.api.workflowservice.v1
const longestIdentity = 200

interface Caller {
  party: Party
  sealing: Sealing
  call: Call
}

/** The methods by their paths. `isPoll` ones wait for work. */
export type Methods = ReadonlyMap<string, { isPoll: boolean; run: (caller: Caller) => Promise<Uint8Array> }>

export function makeMethods({
  connection,
  namespace,
  log,
}: {
  connection: Connection
  namespace: string
  log: Logger
}): Methods {
  const service = connection.workflowService

  /** Asks Temporal, for as long as the caller waits. Throws CallRefused with Temporal's own status. */
  const ask = <T>({ signal, deadline }: Call, work: () => Promise<T>): Promise<T> =>
    connection
      .withAbortSignal(signal, () => connection.withDeadline(deadline, work))
      .catch((error: unknown) => {
        if (!isGrpcServiceError(error)) throw error
        const [details] = error.metadata?.get('grpc-status-details-bin') ?? []
        throw new CallRefused(error.code, error.details, Buffer.isBuffer(details) ? details : undefined)
      })

  /** Throws CallRefused unless a party named the platform's namespace, or none. */
  const hold = ({ namespace: named }: { namespace: string }): void => {
    if (named && named !== namespace)
      throw new CallRefused(status.permissionDenied, 'The gateway does not serve this namespace')
  }
  const whose = ({ identity }: { identity: string }) => ({
    namespace,
    identity: identity.slice(0, longestIdentity),
  })

  /** A task with payloads that are not the platform's was not scheduled by it, and reaches no party. */
  async function fail({ party, call }: Caller, { token, workflowId }: HeldTask, error: PayloadRefused) {
    log.warn({ err: error, party: nameOf(party), workflow_id: workflowId }, 'a task is refused')
    await ask(call, () =>
      service.respondActivityTaskFailed({
        namespace,
        taskToken: token,
        failure: {
          message: 'The task is not the platform’s',
          applicationFailureInfo: { type: 'payload_refused', nonRetryable: true },
        },
      }),
    )
  }

  async function poll(caller: Caller): Promise<Uint8Array> {
    const { party, sealing, call } = caller
    const asked = temporal.PollActivityTaskQueueRequest.decode(await call.message())
    hold(asked)
    const name = queueOf(party)
    if (asked.taskQueue?.name !== name)
      throw new CallRefused(status.permissionDenied, `The queue is not this ${party.kind}’s`)
    const { TASK_QUEUE_KIND_NORMAL: kind } = proto.temporal.api.enums.v1.TaskQueueKind
    const task = await ask(call, () =>
      service.pollActivityTaskQueue({ ...whose(asked), taskQueue: { name, kind } }),
    )
    const none = () => temporal.PollActivityTaskQueueResponse.encode({}).finish()
    if (!task.taskToken?.length) return none()
    const held = { token: task.taskToken, workflowId: task.workflowExecution?.workflowId ?? '' }
    // The SDK passes no headers through codecs, and ours have none.
    task.taskToken = sealing.handOut(held)
    task.header = null
    try {
      await sealing.forParty(held, task, walkPollActivityTaskQueueResponse)
    } catch (error) {
      if (!(error instanceof PayloadRefused)) throw error
      await fail(caller, held, error)
      return none()
    }
    return temporal.PollActivityTaskQueueResponse.encode(task).finish()
  }

  async function heartbeat({ sealing, call }: Caller): Promise<Uint8Array> {
    const said = temporal.RecordActivityTaskHeartbeatRequest.decode(await call.message())
    hold(said)
    const task = sealing.takeBack(said.taskToken)
    const request = { ...whose(said), taskToken: task.token, details: said.details ?? null }
    await sealing.fromParty(task, request, walkRecordActivityTaskHeartbeatRequest)
    const answer = await ask(call, () => service.recordActivityTaskHeartbeat(request))
    return temporal.RecordActivityTaskHeartbeatResponse.encode(answer).finish()
  }

  async function complete({ sealing, call }: Caller): Promise<Uint8Array> {
    const said = temporal.RespondActivityTaskCompletedRequest.decode(await call.message())
    hold(said)
    const task = sealing.takeBack(said.taskToken)
    const request = { ...whose(said), taskToken: task.token, result: said.result ?? null }
    await sealing.fromParty(task, request, walkRespondActivityTaskCompletedRequest)
    await ask(call, () => service.respondActivityTaskCompleted(request))
    return nothing
  }

  async function failed({ sealing, call }: Caller): Promise<Uint8Array> {
    const said = temporal.RespondActivityTaskFailedRequest.decode(await call.message())
    hold(said)
    const task = sealing.takeBack(said.taskToken)
    const { failure, lastHeartbeatDetails } = said
    const request = {
      ...whose(said),
      taskToken: task.token,
      failure: failure ?? null,
      lastHeartbeatDetails: lastHeartbeatDetails ?? null,
    }
    await sealing.fromParty(task, request, walkRespondActivityTaskFailedRequest)
    await ask(call, () => service.respondActivityTaskFailed(request))
    return nothing
  }

  async function canceled({ sealing, call }: Caller): Promise<Uint8Array> {
    const said = temporal.RespondActivityTaskCanceledRequest.decode(await call.message())
    hold(said)
    const task = sealing.takeBack(said.taskToken)
    const request = { ...whose(said), taskToken: task.token, details: said.details ?? null }
    await sealing.fromParty(task, request, walkRespondActivityTaskCanceledRequest)
    await ask(call, () => service.respondActivityTaskCanceled(request))
    return nothing
  }

  async function getSystemInfo({ call }: Caller): Promise<Uint8Array> {
    await call.message()
    return temporal.GetSystemInfoResponse.encode(await ask(call, () => service.getSystemInfo({}))).finish()
  }

  /** Without the namespace's capabilities: they would make the SDK's worker call more methods. */
  async function describeNamespace({ call }: Caller): Promise<Uint8Array> {
    hold(temporal.DescribeNamespaceRequest.decode(await call.message()))
    const { namespaceInfo } = await ask(call, () => service.describeNamespace({ namespace }))
    const { name, state, limits } = namespaceInfo ?? {}
    return temporal.DescribeNamespaceResponse.encode({
      namespaceInfo: { name: name ?? null, state: state ?? null, limits: limits ?? null },
    }).finish()
  }

  return new Map([
    [at('PollActivityTaskQueue'), { isPoll: true, run: poll }],
    [at('RecordActivityTaskHeartbeat'), { isPoll: false, run: heartbeat }],
    [at('RespondActivityTaskCompleted'), { isPoll: false, run: complete }],
    [at('RespondActivityTaskFailed'), { isPoll: false, run: failed }],
    [at('RespondActivityTaskCanceled'), { isPoll: false, run: canceled }],
    [at('GetSystemInfo'), { isPoll: false, run: getSystemInfo }],
    [at('DescribeNamespace'), { isPoll: false, run: describeNamespace }],
    [at('ShutdownWorker'), { isPoll: false, run: shutdownWorker }],
  ])
}

const nothing = new Uint8Array()

/** Answered here: its polls end with its connection, and Temporal would take any worker's name. */
async function shutdownWorker({ call }: Caller): Promise<Uint8Array> {
  await call.message()
  return nothing
}

const at = (name: string): string => `/temporal.api.workflowservice.v1.WorkflowService/${name}`
