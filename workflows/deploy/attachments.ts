import { isCancellation, proxyLocalActivities } from '@temporalio/workflow'
import type { AttachmentActivities } from '../../activities/deploy/attachments.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'
import { tellHosts } from '../network/hosts.ts'

// Hosts make the users and the paths that the records want. A step has a host do so now, and waits for it.

const platform = proxyLocalActivities<AttachmentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** A busy database may refuse for a while, and a host may be making its networks anew. */
export const someTries = { retry: { initialInterval: '500 ms', maximumInterval: '5 s', maximumAttempts: 8 } }

/** For a new attachment: a machine that was killed is back in a minute or two, and so is its database. */
const patiently = { retry: { ...someTries.retry, maximumAttempts: 40 } }

/** The user and the path are there when it returns. */
async function make(id: string, progress: (step: string) => void): Promise<void> {
  const facts = await platform.attachmentFacts(id)
  if (!facts) return
  const { database_id, database_host, path_host, network_hosts } = facts
  progress('making its user in the database')
  if (database_host) await on(database_host, patiently).applyDatabaseUsersOnHost(database_id)
  progress('making its path to the database')
  const told = tellHosts(network_hosts.filter((host) => host !== path_host))
  if (path_host) await on(path_host, patiently).applyPathOnHost(id)
  await told
}

/**
 * Takes its user, its path and its variable away. What a host does not do now, it does when it is back, or when the
 * database has started.
 */
export async function takeAway(id: string): Promise<void> {
  await platform.beginDetaching(id)
  const facts = await platform.attachmentFacts(id)
  if (!facts) return
  const { database_id, database_host, path_host, network_hosts } = facts
  const tries = { ...someTries, scheduleToStartTimeout: '15 s' } as const
  if (database_host)
    await on(database_host, tries).applyDatabaseUsersOnHost(database_id, true).catch(unlessCancelled)
  if (path_host) await on(path_host, tries).applyPathOnHost(id).catch(unlessCancelled)
  await tellHosts(network_hosts.filter((host) => host !== path_host))
  await platform.forgetAttachment(id)
}

export function unlessCancelled(error: unknown): void {
  if (isCancellation(error)) throw error
}

/** For the kinds of instances that have config vars. */
export const attachmentWorkflows = {
  attachDatabase: durable<{ attachment_id: string }>(async ({ input, before, undo, progress }) => {
    const { attachment_id: id } = input
    undo(() => takeAway(id))
    await make(id, progress)
    await platform.attachmentMade(id)
    return { status: before }
  }),

  detachDatabase: durable<{ attachment_id: string }>(
    async ({ input, before, progress }) => {
      progress('removing its user, its path and its variable')
      await takeAway(input.attachment_id)
      return { status: before }
    },
    { final: true },
  ),
}
