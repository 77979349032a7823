import { expect, test } from '@jest/globals'
import { asRoot } from '../../support/as-root.ts'
import { runInXfsGuest } from '../../support/xfs-guest.ts'

asRoot('on an engine whose layers have quotas', () => {
  test('a container’s writes beyond its disk_gib fail, it goes on, and its bound can be changed', async () => {
    expect(await runInXfsGuest()).toEqual({
      quotas: [true, false],
      refused: expect.stringContaining('No space left on device'),
      goesOn: expect.stringContaining('2+0 records out'),
      // One with very many empty files is measured and stopped: the quota does not count them.
      stopped: { large: false, other: false, names: true },
      afterLooks: { state: 'running', full: null },
      afterRaise: { full: false, wrote: expect.stringContaining('16+0 records out') },
      afterStart: { same: true, wrote: expect.stringContaining('No space left on device') },
      // Without quotas.
      unheld: { stopped: true, full: false },
    })
  })
})
