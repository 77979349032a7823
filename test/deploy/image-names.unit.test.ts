import { describe, expect, test } from '@jest/globals'
import { imageName, isImageReference, isShortImageName } from '../../lib/image-names.ts'

// An engine of version 20.10 was asked to make a container of each: it refuses the same ones as invalid references.

const digest = `sha256:${'0123456789abcdef'.repeat(4)}`

/** A name of so many characters. */
const of = (length: number, before = ''): string => before + 'a'.repeat(length - before.length)

describe('the name of an image', () => {
  test.each([
    'nginx',
    'a1',
    'acme/app',
    'acme/team/app',
    'a.b',
    'a_b',
    'a__b',
    'a-b',
    'a---b',
    'a-b.c_d__e',
    'localhost/app',
    'ghcr.io/acme/app',
    'registry.example.com:5000/acme/app',
    'Registry.Example.com/app',
    'my-registry:443/app',
    '10.77.0.11:5000/app',
  ])('may be %s', (name) => {
    expect([name, imageName.test(name), isImageReference(name)]).toEqual([name, true, true])
  })

  test.each([
    '',
    'a..b',
    'a._b',
    'a_.b',
    'a___b',
    'a.-b',
    'a-.b',
    '.a',
    'a.',
    '-a',
    'a-',
    '_a',
    'a_',
    'App',
    'acme/App',
    'acme//app',
    '/app',
    'app/',
    'ghcr.io/',
    'ghcr..io/App',
    '-ghcr.io/app',
    'ghcr.io:/app',
    'ghcr.io:port/app',
    '[2001:db8::1]:5000/app',
    'Acme/app',
    'a b',
    'app\n',
    'é',
  ])('is never %j', (name) => {
    expect([name, imageName.test(name), isImageReference(name)]).toEqual([name, false, false])
  })

  test('has 255 characters at most, with the registry and the owner of an image of Docker Hub', () => {
    expect([of(237), of(238)].map(isShortImageName)).toEqual([true, false])
    expect([of(245, 'acme/'), of(246, 'acme/')].map(isShortImageName)).toEqual([true, false])
    expect([of(255, 'ghcr.io/'), of(256, 'ghcr.io/')].map(isShortImageName)).toEqual([true, false])
  })
})

describe('a reference of an image', () => {
  test.each([
    'nginx:1.29',
    'nginx:latest',
    'nginx:_x',
    `nginx:${'x'.repeat(128)}`,
    'ghcr.io:5000/app:V1.0-rc.1',
    `nginx@${digest}`,
    `nginx:1.29@${digest}`,
  ])('may be %s', (reference) => {
    expect([reference, isImageReference(reference)]).toEqual([reference, true])
  })

  test.each([
    'nginx:',
    'nginx:.x',
    'nginx:-x',
    `nginx:${'x'.repeat(129)}`,
    'nginx:a:b',
    'nginx@',
    'nginx@sha256:0123',
    `nginx@${digest.toUpperCase()}`,
    `nginx@md5:${'0'.repeat(32)}`,
  ])('is never %s', (reference) => {
    expect([reference, isImageReference(reference)]).toEqual([reference, false])
  })
})
