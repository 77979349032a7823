import type { ContainerSample } from '../../drivers/containers.ts'
import type { TaskSamples } from '../../drivers/swarms.ts'
import { samplesPerMessage } from '../../lib/host-protocol.ts'
import type { ReplicaReport } from '../../lib/deploy-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import { makeMarks, type TakeSamples } from './sampler.ts'

// Each costs a command in the machine.
const machinesAtOnce = 4

interface Parts {
  tasks: TaskSamples
  /** The machines that run on this host. */
  machines: () => string[]
  /** Gets the containers that run. */
  seen: (running: { id: string; started_at: string }[]) => void
  send: (report: ReplicaReport) => Promise<void>
  log: Logger
}

/** Samples the usage of the replicas on this host's machines, and tells of those that have ended. */
export function sampleReplicas({ tasks, machines, seen, send, log }: Parts): TakeSamples {
  const marks = makeMarks<ContainerSample & { machine_id: string }>()
  let told = new Set<string>()

  async function look(machine_id: string) {
    try {
      const { running, healths, ended } = await tasks(machine_id)
      return {
        running: running.map(({ service_id, ...used }) => ({ machine_id, id: service_id, ...used })),
        healths: healths.map((one) => ({ machine_id, ...one })),
        ended: ended.map((one) => ({ machine_id, ...one })),
      }
    } catch (err) {
      log.debug({ err, machine_id }, 'the replicas of a machine were not sampled') // it may have just ended
      return { running: [], healths: [], ended: [] }
    }
  }

  return async () => {
    const ids = machines()
    const found = await mapAtOnce(ids, machinesAtOnce, look)
    const running = found.flatMap((one) => one.running)
    seen(running)
    const samples = marks.mark(running)
    const healths = found.flatMap((one) => one.healths)
    const ended = found.flatMap((one) => one.ended)
    const news = ended.filter(({ engine_id }) => !told.has(engine_id))
    const most = Math.max(samples.length, healths.length, news.length)
    for (let at = 0; at < most; at += samplesPerMessage) {
      const end = at + samplesPerMessage
      const part = { samples: samples.slice(at, end), healths: healths.slice(at, end) }
      await send({ ...part, ended: news.slice(at, end), databases: [] })
    }
    marks.accepted(samples)
    told = new Set(ended.map(({ engine_id }) => engine_id))
  }
}
