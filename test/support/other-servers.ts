import { expect } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { Deployment } from '../../models/deploy/deployments.ts'
import { platformLogin, registryAddress } from '../../models/deploy/registries.ts'
import { loadAppImages, loadBaseImage } from './app-images.ts'
import type { Client } from './client.ts'
import { applicationsOf } from './clients/applications.ts'
import { buildsOf } from './clients/builds.ts'
import { runOnMachine } from './machines-inside.ts'
import { makeTenant } from './tenants.ts'

/** What the machines of another tenant's deploy server reach. */
export interface OtherServer {
  /** An application's port at one of its machines. */
  application: Target
  /** Its registry, with its password. */
  registry: Target
}

interface Target {
  at: string
  path: string
  header: string
  /** What only its answer has. */
  has: string
}

/** Has three workers: the address of the third is that of no machine of a deploy server with fewer. */
export async function makeOtherServer(): Promise<OtherServer> {
  const { owner, id: tenant_id } = await makeTenant()
  const server = await owner.deployServers.make({ worker_count: 3 })
  await loadAppImages(owner, server)
  await loadBaseImage(owner, server)
  await buildsOf(owner, server.id).make('theirs', { Dockerfile: 'FROM busybox\nRUN true' })
  const GREETING = `theirs-${newId().slice(-8)}`
  const app = await applicationsOf(owner, server.id).make({ replicas: 3, envs: { GREETING } })
  const serves = await Deployment.findOne({ _id: app.deployment_id, tenant_id }).lean()
  const place = serves?.places.find(({ node }) => node === 'w3')
  const record = await DeployServer.findOne({ _id: server.id, tenant_id }).lean()
  const login = record && (await platformLogin(record))
  const basic = Buffer.from(`${login?.name}:${login?.password}`).toString('base64')
  const other: OtherServer = {
    application: {
      at: `${place?.ip_address}:${place?.machine_port}`,
      path: '/',
      header: 'Accept: */*',
      has: GREETING,
    },
    registry: {
      at: registryAddress('w1'),
      path: '/v2/_catalog',
      header: `Authorization: Basic ${basic}`,
      has: 'theirs',
    },
  }
  for (const what of Object.values(other))
    expect(await answerTo(owner, server.workers[1]?.machine_id ?? '', what)).toContain(what.has)
  return other
}

/** What a machine gets. */
function answerTo(client: Client, machineId: string, { at, path, header }: Target): Promise<string> {
  const request = `GET ${path} HTTP/1.0\\r\\nHost: ${at}\\r\\n${header}\\r\\n\\r\\n`
  return runOnMachine(client, machineId, `printf '${request}' | socat -t 10 - TCP4:${at}`)
}
