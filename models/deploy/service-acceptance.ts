import { needFewVars } from '../../lib/config-vars.ts'
import { InvalidInput, StateConflict } from '../../lib/problem.ts'
import { begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { needAllowedImage } from '../compute/images.ts'
import { urlAt } from '../network/load-balancer-endpoints.ts'
import { LoadBalancer } from '../network/load-balancers.ts'
import { type Accepted, Operation } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { everyTenant } from '../tenant-scope.ts'
import { readCompose, renderCompose, type TakenPaths } from './compose/compose.ts'
import { diffOf, type PlanDiff } from './compose/diff.ts'
import { askedUrl, generateValue } from './compose/generated.ts'
import { pathsOf } from './compose/mounts.ts'
import type { PlannedContainer } from './compose/plan.ts'
import { retakeImage, takeImage } from './built-images.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { takeKeptVolumes } from './kept-service-volumes.ts'
import { hostPartOf, serviceHostName } from './service-routes.ts'
import {
  buildsOfPlan,
  openRevision,
  sealRevision,
  type ServiceDocument,
  serviceResource,
  type ServiceRevision,
} from './services.ts'
import { storagesOfService } from './storages.ts'
import { templateOfType } from './templates/templates.ts'

// The acceptance rules for services.

type Source = Pick<ServiceRevision, 'text' | 'envs' | 'generated'>

export interface NewService {
  name: string
  tags: Record<string, string>
  /** Either a template's type or a text. */
  type: string | undefined
  docker_compose: string | undefined
  envs: Record<string, string>
  within_sec: number
}

/**
 * Accepts a service. Throws NotFound, InvalidInput with the line of each fault of its text, StateConflict unless the
 * deploy server is ready or changing, NameTaken.
 */
export const acceptService = (
  by: By,
  server: { id: string; domain: string },
  { type, docker_compose, envs, ...fields }: NewService,
): Promise<Accepted<ServiceDocument>> =>
  transaction(async () => {
    const { tenant_id } = by
    const parent = await lockParent(deployServerResource, tenant_id, server.id)
    if (parent.status === 'creating') throw new StateConflict('create a service', parent.status)
    const text = docker_compose ?? templateText(type)
    const kept = await takeKeptVolumes(tenant_id, server.id, fields.name)
    const source = { text, envs, generated: kept?.generated ?? {} }
    const storages = kept ? await storagesOfService(tenant_id, kept.id) : []
    const at = { server: parent, name: fields.name, domain: server.domain, storages }
    const revision = await revise(source, at)
    return create(by, serviceResource, {
      ...(kept ? { id: kept.id } : {}),
      fields: {
        ...fields,
        deploy_server_id: server.id,
        type: type ?? null,
        revision_sealed: await sealRevision(tenant_id, { ...revision, plan: nothing }),
        next_sealed: await sealRevision(tenant_id, revision),
        former_sealed: '-',
        containers: [],
        wanted: {},
        volumes: [...new Set([...(kept?.volumes ?? []), ...revision.plan.volumes])],
        ...(kept && kept.volumes === null ? { has_unknown_volumes: true } : {}),
        builds: buildsOfPlan(revision.plan),
        volume_node: kept?.volume_node ?? null,
        routes: [],
      },
    })
  }, by.tenant_id)

const nothing = { containers: [], networks: [], volumes: [] }

function templateText(type: string | undefined): string {
  const template = type === undefined ? undefined : templateOfType(type)
  if (template) return template.text
  throw new InvalidInput(422, [{ pointer: '/type', message: 'is not a template' }])
}

/** Generates what the text wants and has no value yet, and renders it. Throws InvalidInput. */
async function revise(
  { text, envs, generated }: Source,
  at: { server: DeployServerDocument; name: string; domain: string; storages: TakenPaths },
): Promise<ServiceRevision> {
  const file = readCompose(text)
  const urls = await urlsOf(at)
  const values: Record<string, string> = { ...generated }
  const later: [string, NonNullable<ReturnType<typeof askedUrl>>][] = []
  for (const variable of file.variables) {
    const url = askedUrl(variable, file.names)
    const value = values[variable] ?? generateValue(variable)
    if (url) later.push([variable, url])
    else if (value !== undefined) values[variable] = value
  }
  // The first port of a container is known once the text is rendered.
  const rendered = renderCompose(
    file,
    (name) => envs[name] ?? values[name] ?? (later.some(([url]) => url === name) ? 'url' : undefined),
    at.storages,
  )
  for (const [variable, { container, port, form }] of later) {
    const ports = rendered.containers.find(({ name }) => name === container)?.ports ?? []
    values[variable] = urls(hostPartOf(container, port ?? ports[0] ?? 80, ports))[form]
  }
  const plan = renderCompose(file, (name) => envs[name] ?? values[name], at.storages)
  const containers: PlannedContainer[] = []
  // One after another: they may be in one transaction.
  for (const one of plan.containers) containers.push(await withBuild(at.server, one))
  return { text, envs, generated: values, plan: { ...plan, containers } }
}

/**
 * An image that was built on the deploy server, or pushed to it, comes before one of the same name elsewhere, as in
 * applications. Throws as `needAllowedImage` and `takeImage`.
 */
async function withBuild(
  { _id, tenant_id }: DeployServerDocument,
  container: PlannedContainer,
): Promise<PlannedContainer> {
  needAllowedImage(container.image)
  const [, image, tag = 'latest'] = /^([^:@]+)(?::([^:/@]+))?$/.exec(container.image) ?? []
  const asked = { tenant_id, deploy_server_id: _id, image: image ?? '', tag }
  const built = image && (await takeImage(asked, { pointer: '/docker_compose' }))
  return built ? { ...container, built } : container
}

/** The URLs of containers, by the first part of their host names. */
async function urlsOf({
  server,
  name,
  domain,
}: {
  server: DeployServerDocument
  name: string
  domain: string
}): Promise<(hostPart: string) => { url: string; fqdn: string }> {
  const { tenant_id, lb_id } = server
  const balancer = lb_id ? await LoadBalancer.findOne({ _id: lb_id, tenant_id }).lean() : null
  return (hostPart) => {
    const host = serviceHostName(hostPart, { name }, server, domain)
    const url = (balancer && urlAt(balancer, 'http', host)) ?? `http://${host}`
    return { url, fqdn: new URL(url).host }
  }
}

export interface ServiceChanges {
  docker_compose?: string | undefined
  /** Null: remove it. The others stay. */
  envs?: Record<string, string | null> | undefined
}

/** What a change would make of a service. Throws InvalidInput. */
export async function reviseService(
  service: ServiceDocument,
  server: DeployServerDocument,
  domain: string,
  { docker_compose, envs = {} }: ServiceChanges,
): Promise<{ revision: ServiceRevision; diff: PlanDiff }> {
  const { _id, tenant_id, name, next_sealed, revision_sealed } = service
  // A creation that failed has a next one, and may have brought a part of it.
  const before = await openRevision(tenant_id, next_sealed === '-' ? revision_sealed : next_sealed)
  const kept = Object.entries({ ...before.envs, ...envs }).filter(
    (pair): pair is [string, string] => pair[1] !== null,
  )
  const all = Object.fromEntries(kept)
  if (Object.values(envs).some((value) => value !== null)) needFewVars(all)
  const source = {
    text: docker_compose ?? before.text,
    envs: all,
    generated: before.generated,
  }
  const storages = await storagesOfService(tenant_id, _id)
  const revision = await revise(source, { server, name, domain, storages })
  return { revision, diff: diffOf(before.plan, revision.plan) }
}

/** Throws InvalidInput if the compose file mounts something at this path of a container. */
export async function needFreePath(
  { tenant_id, revision_sealed, next_sealed }: ServiceDocument,
  container: string,
  mount_path: string,
): Promise<void> {
  for (const sealed of [revision_sealed, next_sealed].filter((one) => one !== '-')) {
    const { plan } = await openRevision(tenant_id, sealed)
    const planned = plan.containers.find(({ name }) => name === container)
    if (planned && pathsOf(planned).has(mount_path))
      throw new InvalidInput(422, [{ pointer: '/mount_path', message: 'is taken by the compose file' }])
  }
}

/** Accepts a change of a service. Throws NotFound, StateConflict, `image_removed`. */
export const acceptServiceUpdate = (
  by: By,
  { _id, tenant_id, builds }: ServiceDocument,
  revision: ServiceRevision,
): Promise<Accepted<ServiceDocument>> =>
  transaction(async () => {
    // One may have been removed since.
    for (const { built } of revision.plan.containers) if (built) await retakeImage(tenant_id, built)
    const next_sealed = await sealRevision(tenant_id, revision)
    const needed = [...new Set([...builds, ...buildsOfPlan(revision.plan)])]
    return begin(by, serviceResource, _id, 'update', { set: { next_sealed, builds: needed } })
  }, by.tenant_id)

/** Has a change that fails after it was settled not go back to what the service was before. */
export async function keepSettled(
  operation_id: string,
  { next_sealed, builds }: Pick<ServiceDocument, 'next_sealed' | 'builds'>,
): Promise<void> {
  await Operation.updateOne(
    { _id: operation_id, 'before.next_sealed': { $exists: true } },
    { $set: { 'before.next_sealed': next_sealed, 'before.builds': builds } },
  ).setOptions(everyTenant)
}
