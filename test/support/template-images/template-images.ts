import { text } from 'node:stream/consumers'
import { templateOfType } from '../../../models/deploy/templates/templates.ts'
import { readCompose } from '../../../models/deploy/compose/compose.ts'
import type { Client, DeployServerBody } from '../client.ts'
import { docker } from '../containers.ts'
import { innerEngine } from '../machines-inside.ts'
import { hasEngines, makeDatabaseImages } from '../database-images.ts'
import * as programs from './programs.ts'
import { adminer, nats, prometheus } from './small.ts'
import type { StandIn } from './stand-in.ts'

// Stand-ins for the public images of service templates, under the names that the templates give. Each has the program
// itself, which script/bootstrap --tests has built or unpacked, with the entry point, the paths and the user of the public image.

const standIns: Record<string, StandIn> = {
  adminer,
  nats,
  postgres: {
    isHere: hasEngines,
    async make(repo, tag) {
      await makeDatabaseImages('postgresql')
      await docker.getImage('keelson/test-postgresql:16.10').tag({ repo, tag })
    },
  },
  'actualbudget/actual-server': programs.actual,
  'ghcr.io/muchobien/pocketbase': programs.pocketbase,
  'ghcr.io/marimo-team/marimo': programs.marimo,
  'gitea/gitea': programs.gitea,
  'miniflux/miniflux': programs.miniflux,
  'neosmemo/memos': programs.memos,
  'nodered/node-red': programs.nodeRed,
  'prom/prometheus': prometheus,
  'quay.io/keycloak/keycloak': programs.keycloak,
  'semitechnologies/weaviate': programs.weaviate,
  'versity/versitygw': programs.versitygw,
}

/** The images of a template, by their names. */
export function imagesOf(type: string): string[] {
  const { services } = readCompose(templateOfType(type)?.text ?? '').text.value as {
    services: Record<string, { image: string }>
  }
  return [...new Set(Object.values(services).map(({ image }) => image))]
}

const partsOf = (name: string): [repo: string, tag: string] => {
  const at = name.lastIndexOf(':')
  return [name.slice(0, at), name.slice(at + 1)]
}

/** Whether this machine has the programs of all images of the template. */
export const canRun = (type: string): boolean =>
  imagesOf(type).every((name) => standIns[partsOf(name)[0]]?.isHere)

/** Makes the images of a template, and loads them into the engine of the deploy server's worker. */
export async function loadTemplateImages(
  client: Client,
  server: DeployServerBody,
  type: string,
): Promise<void> {
  const inner = await innerEngine(client, server.workers[0]?.machine_id ?? '')
  for (const name of imagesOf(type)) {
    const [repo, tag] = partsOf(name)
    await standIns[repo]?.make(repo, tag)
    await text(await inner.loadImage(await docker.getImage(name).get()))
  }
}

/** Makes room on both engines for the images of the next template. */
export async function removeTemplateImages(
  client: Client,
  server: DeployServerBody,
  type: string,
): Promise<void> {
  const inner = await innerEngine(client, server.workers[0]?.machine_id ?? '')
  for (const name of imagesOf(type))
    for (const engine of [inner, docker]) await engine.getImage(name).remove({ force: true })
}
