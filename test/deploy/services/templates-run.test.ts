import { beforeAll, expect, test } from '@jest/globals'
import type { DeployServerBody } from '../../support/client.ts'
import { servicesOf } from '../../support/clients/services.ts'
import { isLong } from '../../support/long.ts'
import { sampled } from '../../support/sampled.ts'
import { leftOfServices } from '../../support/services-left.ts'
import {
  canRun,
  loadTemplateImages,
  removeTemplateImages,
} from '../../support/template-images/template-images.ts'
import { programProofs } from '../../support/template-program-proofs.ts'
import { type Proof, smallProofs } from '../../support/template-proofs.ts'
import { makeTenant, type TestTenant } from '../../support/tenants.ts'
import { visit, type VisitOptions } from '../../support/visits.ts'

// Templates run their programs: the real ones, in stand-ins of the public images. docs/services.md says which, and why not the
// others. The template of a static site is in services.test.ts.

let tenant: TestTenant
let server: DeployServerBody
let services: ReturnType<typeof servicesOf>
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make(
    isLong ? { worker_instance_type: 'medium', worker_disk_gib: 8 } : {},
  )
  services = servicesOf(tenant.owner, server.id)
})

const proofs = isLong ? [...smallProofs, ...programProofs] : sampled(smallProofs, 1)

// Skipped: script/bootstrap --tests could not get the program on this machine.
for (const proof of proofs)
  (canRun(proof.type) ? test : test.skip)(`the template ${proof.type} runs`, () => runTemplate(proof))

async function runTemplate({ type, use, ...options }: Proof): Promise<void> {
  await loadTemplateImages(tenant.owner, server, type)
  const service = await services.make({ type, ...options })
  try {
    const isWell = { status: 'running', status_reason: null }
    expect(service).toMatchObject(isWell)
    expect(new Set(service.containers.map(({ state }) => state))).toEqual(new Set(['running']))
    const { generated } = await services.compose(service.id)
    const [url = ''] = service.containers.flatMap(({ ports }) => ports.map((port) => port.url))
    const reach = (path: string, asked?: VisitOptions) => visit(url, path, asked)
    const lasts = await use({
      url,
      visit: reach,
      ask: async (path, asked) => JSON.parse((await reach(path, asked)).text),
      generated,
      run: (container, command) => services.run(service.id, container, command),
    })
    await (await services.do(service.id, 'restart')).operation.success()
    expect(await services.get(service.id)).toMatchObject(isWell)
    await lasts()
  } finally {
    await (await services.delete(service.id)).operation.success()
    await removeTemplateImages(tenant.owner, server, type)
  }
  const nothing = { containers: 0, volumes: 0, networks: 0, files: 0 }
  expect(await leftOfServices(tenant.owner, server, service.id)).toEqual(nothing)
}
