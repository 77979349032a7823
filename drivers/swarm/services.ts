import { createHash } from 'node:crypto'
import { asking, unless, wordsOf } from '../docker/errors.ts'
import { EngineRefused } from '../errors.ts'
import type { DialMachine, FoundSwarmService, SwarmServiceSpec, SwarmServices } from '../swarms.ts'
import { withEngine } from './dial.ts'
import { machineLabel } from './membership.ts'
import { composedParts, makeSurroundings, type SurroundingsApi, tidySurroundings } from './surroundings.ts'
import { literal } from './templates.ts'
import { type Task, newestTask } from './tasks.ts'

/** Has the platform's id of the service, also on its containers. */
export const serviceLabel = 'keelson.service'
const labels = { service: serviceLabel, spec: 'keelson.spec', machine: machineLabel } as const
const nanos = 1e9
const mebibyte = 1024 ** 2
/** A failed task starts again after this time. */
const restartDelaySec = 2
const pidsLimit = 1024

interface Service {
  ID: string
  Version: { Index: number }
  UpdatedAt: string
  Spec: { Name: string; Labels?: Record<string, string> }
}

/** The part of the engine's API that is used here. */
interface ServicesApi {
  listServices(options: object): Promise<Service[]>
  listTasks(options: object): Promise<Task[]>
  createService(login: object | undefined, spec: object): Promise<unknown>
  getService(id: string): {
    inspect(): Promise<Service>
    update(login: object | undefined, spec: object): Promise<unknown>
    remove(): Promise<unknown>
  }
}

/** Services of Swarms, each with one task on the member that the platform has chosen. */
export function makeSwarmServices(dial: DialMachine): SwarmServices {
  const ours = { filters: { label: [labels.service] } }

  return {
    apply: (managerId, services, ownerId, signal) =>
      asking(
        () =>
          withEngine(dial, managerId, async (engine: ServicesApi & SurroundingsApi) => {
            const there = await engine.listServices(ours)
            const byId = new Map(there.map((one) => [one.Spec.Labels?.[labels.service] ?? '', one]))
            const ids = new Set(services.map(({ id }) => id))
            const faults: unknown[] = []
            const tryTo = (work: () => Promise<unknown>, isOthers = false): Promise<unknown> =>
              asking(work, signal).catch((error: unknown) => {
                if (!(isOthers && error instanceof EngineRefused)) faults.push(error)
              })
            // Remove first: their ports may be others' now.
            for (const [id, { ID }] of byId)
              if (!ids.has(id)) await tryTo(() => unless([404], engine.getService(ID).remove()))
            const fileIds = await makeSurroundings(engine, services)
            for (const wanted of services) {
              signal?.throwIfAborted()
              const isOthers = ownerId === null || !Object.values(wanted.labels).includes(ownerId)
              await tryTo(() => bring(engine, wanted, byId.get(wanted.id), fileIds), isOthers)
            }
            if (faults.length) throw faults[0]
            await tidySurroundings(engine, services)
          }),
        signal,
      ),

    list: (managerId) =>
      asking(async () => {
        const [services, tasks] = await withEngine(dial, managerId, (engine: ServicesApi) =>
          Promise.all([engine.listServices(ours), engine.listTasks(ours)]),
        )
        const byService = Map.groupBy(tasks, ({ ServiceID }) => ServiceID)
        return services.map((service): FoundSwarmService => {
          const its = byService.get(service.ID) ?? []
          const { spec } = labels
          // After an update the former task may still be the newest.
          const marked = its.filter(({ Spec }) => Spec.ContainerSpec.Labels?.[spec] !== undefined)
          const present = marked.filter(
            ({ Spec }) => Spec.ContainerSpec.Labels?.[spec] === service.Spec.Labels?.[spec],
          )
          const since = marked.length ? 0 : Date.parse(service.UpdatedAt)
          return {
            id: service.Spec.Labels?.[labels.service] ?? '',
            machine_id: service.Spec.Labels?.[labels.machine] ?? '',
            spec_hash: service.Spec.Labels?.[labels.spec] ?? '',
            ...newestTask(marked.length ? present : its, since),
          }
        })
      }),
  }
}

/** Tries again after another change came in between. */
async function update(
  engine: ServicesApi,
  id: string,
  login: object | undefined,
  spec: object,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    const service = engine.getService(id)
    const { Version } = await service.inspect()
    try {
      await service.update(login, { version: Version.Index, ...spec })
      return
    } catch (error) {
      if (tries === 10 || !/out of sequence/.test(wordsOf(error))) throw error
    }
  }
}

async function bring(
  engine: ServicesApi,
  wanted: SwarmServiceSpec,
  there: Service | undefined,
  fileIds: ReadonlyMap<string, string>,
): Promise<void> {
  const spec = specOf(wanted, fileIds)
  const { registry_login: login } = wanted
  // The Swarm keeps it with the service, and gives it to the member that pulls the image.
  const auth = login ? { username: login.name, password: login.password } : undefined
  if (!there)
    await unless([409], engine.createService(auth, spec)) // 409: another call has made it
  else if (there.Spec.Labels?.[labels.spec] !== spec.Labels[labels.spec])
    await update(engine, there.ID, auth, spec)
}

function specOf(spec: SwarmServiceSpec, fileIds: ReadonlyMap<string, string>) {
  const { health_check: check } = spec
  const carried: Record<string, string> = {
    ...spec.labels,
    [labels.service]: spec.id,
    [labels.machine]: spec.machine_id,
  }
  const body = {
    Name: `${spec.name.slice(0, 40)}-${spec.id.slice(-12)}`,
    TaskTemplate: {
      ContainerSpec: {
        Image: spec.image,
        ...(spec.command.length ? { Args: spec.command } : {}),
        Env: Object.entries(spec.env).map(([key, value]) => `${key}=${literal(value)}`),
        Labels: carried,
        Init: true, // reaps orphans and forwards signals, which few images' first process does
        StopGracePeriod: spec.stop_grace_sec * nanos,
        Mounts: spec.volumes.map(({ name, mount_path }) => ({
          Type: 'volume',
          Source: name,
          Target: mount_path,
          VolumeOptions: { Labels: spec.labels },
        })),
        HealthCheck: check
          ? {
              Test: ['CMD', ...check.command],
              Interval: check.interval_sec * nanos,
              Timeout: check.timeout_sec * nanos,
              Retries: check.retries,
              StartPeriod: check.start_period_sec * nanos,
            }
          : { Test: ['NONE'] },
      },
      Resources: {
        Limits: {
          NanoCPUs: Math.round(spec.cpu_cores * nanos),
          MemoryBytes: spec.memory_mib * mebibyte,
          Pids: pidsLimit,
        },
      },
      RestartPolicy: { Condition: 'any', Delay: restartDelaySec * nanos },
      Placement: { Constraints: [`node.labels.${machineLabel}==${spec.machine_id}`] },
      ForceUpdate: spec.restarts,
    },
    Mode: { Replicated: { Replicas: 1 } },
    UpdateConfig: { Order: 'stop-first', Parallelism: 1, FailureAction: 'continue' },
    EndpointSpec: {
      Mode: 'dnsrr', // virtual addresses need IPVS
      ...(spec.port
        ? {
            Ports: [
              {
                Protocol: 'tcp',
                PublishMode: 'host',
                TargetPort: spec.port.container_port,
                PublishedPort: spec.port.machine_port,
              },
            ],
          }
        : {}),
    },
  }
  const composed = spec.composed ? composedParts(spec, spec.composed) : null
  const hash = createHash('sha256')
    .update(JSON.stringify(composed ? { body, composed } : body))
    .digest('hex')
  if (composed) body.TaskTemplate.ContainerSpec.Labels = { ...carried, [labels.spec]: hash }
  return { ...(composed ? composed.into(body, fileIds) : body), Labels: { ...carried, [labels.spec]: hash } }
}
