import { expect, test } from '@jest/globals'
import { allTags, type AskRegistry, youngDigests } from '../../../drivers/swarm/registry-tags.ts'
import { newId } from '../../../lib/ids.ts'

/** A registry with these tags, and the digest of each. */
const registryWith =
  (tags: Record<string, string>): AskRegistry =>
  async (_, path) => {
    const found = tags[path.split('/').at(-1) ?? '']
    const lists: Record<string, object> = {
      '/v2/_catalog?n=1000': { repositories: ['shop'] },
      '/v2/shop/tags/list': { tags: Object.keys(tags) },
    }
    const answer = { status: 200, body: JSON.stringify(lists[path] ?? {}) }
    return (found === undefined ? answer : { ...answer, digest: found }) as never
  }

test('a push that ended after the list of what leaves keeps its digest, and none that the list names', async () => {
  const [leaving, pushed] = [newId(), newId()]
  const anHourAgo = (Date.now() - 3_600_001).toString(16).padStart(12, '0')
  const old = `${anHourAgo.slice(0, 8)}-${anHourAgo.slice(8)}${newId().slice(13)}`
  const registry = registryWith({ [leaving]: 'sha256:same', [pushed]: 'sha256:same', [old]: 'sha256:old' })
  const tags = await allTags(registry)
  expect(await youngDigests(registry, tags, new Set([leaving]))).toEqual(['sha256:same'])
  expect(await youngDigests(registry, tags, new Set([leaving, pushed]))).toEqual([])
})
