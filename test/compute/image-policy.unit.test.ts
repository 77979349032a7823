import { expect, test } from '@jest/globals'
import { makeImagePolicy } from '../../lib/image-policy.ts'

const digest = `sha256:${'a'.repeat(64)}`

test.each([
  'busybox',
  'library/busybox:1',
  'keelson/hello:1',
  `ghcr.io/team/app@${digest}`,
  'registry.example.com:5000/team/app:1.2',
  '8.8.8.8/app',
])('by default %s is allowed', (reference) => expect(makeImagePolicy({})(reference)).toBe(null))

test.each([
  'localhost/app',
  'localhost:5000/app',
  '127.0.0.1:5000/app',
  '10.0.0.1/app',
  '169.254.169.254/app',
  '168.63.129.16/app',
  '2130706433:80/app',
  '0x7f.1:80/app',
  '017700000001:5000/app',
  'registry:5000/app',
  'registry.local/app',
  'metadata.google.internal/app',
  'db.localhost:80/app',
  'LOCALHOST:5000/app',
])('by default %s, which is private, is not', (reference) =>
  expect(makeImagePolicy({})(reference)).toBe('image_not_allowed'),
)

test.each([digest, 'sha256:abc', 'deadbeef0123', 'a'.repeat(64)])(
  'the id %s of a local image never is',
  (id) => expect(makeImagePolicy({ allowed: ['docker.io'] })(id)).toBe('local_image_id'),
)

test('an operator allows, denies and exempts by whole parts of a name', () => {
  const policy = makeImagePolicy({
    allowed: ['docker.io/library', 'ghcr.io/team', 'localhost:5000'],
    denied: ['ghcr.io/team/secret'],
    private: ['localhost:5000'],
  })
  const allowed = ['busybox:1', 'docker.io/library/busybox', 'ghcr.io/team/app:1', 'localhost:5000/any']
  const refused = [
    'keelson/hello',
    'ghcr.io/teamwork/app',
    `ghcr.io/team/secret@${digest}`,
    'localhost:5001/any',
  ]
  expect(allowed.map(policy)).toEqual(allowed.map(() => null))
  expect(refused.map(policy)).toEqual(refused.map(() => 'image_not_allowed'))
})
