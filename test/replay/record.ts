// Records the histories that test/operations/replay.unit.test.ts replays: `node test/replay/record.ts [STORY...]`, all
// or only those named, on the tests' stack (`script/test --keep` leaves it up). Record only new workflows. A change to
// an existing workflow must replay its old histories: use `patched`.
import '../support/stack-docker.ts'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { WorkflowFailedError } from '@temporalio/client'
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js'
import { disconnectDatabase } from '../../models/database.ts'
import { decodedHistory } from '../support/histories.ts'
import { closeFurther } from '../support/hosts.ts'
import { removeTenants } from '../support/tenants.ts'
import { anonymous } from './anonymous.ts'
import { aiStories } from './stories/ai.ts'
import { backupStories } from './stories/backups.ts'
import { attachmentStories } from './stories/attachments.ts'
import { containerStories } from './stories/containers.ts'
import { closeAuthority, deployServerStories } from './stories/deploy-servers.ts'
import { diskStories } from './stories/disks.ts'
import { closeAcme, loadBalancerStories } from './stories/load-balancers.ts'
import { microvmStories } from './stories/microvms.ts'
import { networkStories } from './stories/networks.ts'
import { platformStories } from './stories/platform.ts'
import { retrievalStories } from './stories/retrieval.ts'
import { toolStories } from './stories/tools.ts'
import { vmStories } from './stories/vms.ts'
import { longMs, temporal, type Stories } from './world.ts'

const stories: Stories = {
  ...containerStories,
  ...microvmStories,
  ...vmStories,
  ...diskStories,
  ...networkStories,
  ...loadBalancerStories,
  ...deployServerStories,
  ...backupStories,
  ...attachmentStories,
  ...platformStories,
  ...toolStories,
  ...retrievalStories,
  ...aiStories,
}

const folder = new URL('histories/', import.meta.url)

/** A workflow ends as its operation: it may fail, or be cancelled. */
function unlessEnded(error: unknown): void {
  if (!(error instanceof WorkflowFailedError)) throw error
}

async function record(name: string, story: Stories[string]): Promise<void> {
  const { workflow_id, state } = await (await story()).end(longMs)
  // The workflow closes some time after the operation.
  await temporal.workflow.getHandle(workflow_id).result().catch(unlessEnded)
  const history = await decodedHistory(temporal, workflow_id) // decoded, so that the replay needs no key
  const json: unknown = JSON.parse(historyToJSON(history))
  anonymous(json)
  // One history is one line: thousands of lines would bury a review.
  await writeFile(new URL(`${name}.json`, folder), `${JSON.stringify(json)}\n`)
  console.log(`${name}: ${state}, ${history.events.length} events`)
  await closeFurther()
}

const named = process.argv.slice(2)
if (named.length === 0) await rm(folder, { recursive: true, force: true })
await mkdir(folder, { recursive: true })
const failed: string[] = []
for (const [name, story] of Object.entries(stories)) {
  if (named.length > 0 && !named.includes(name)) continue
  try {
    await record(name, story)
  } catch (error) {
    // The others do not need it, but for those that begin with what it leaves.
    console.error(name, error)
    failed.push(name)
  }
}
if (failed.length > 0) console.error(`not recorded: ${failed.join(' ')}`)
await closeAcme()
await closeAuthority()
await removeTenants()
await temporal.connection.close()
await disconnectDatabase()
process.exit(failed.length > 0 ? 1 : 0) // the container engine's client keeps its sockets open
