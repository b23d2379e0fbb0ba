package torture
